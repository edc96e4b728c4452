"""Code of the user on the host.

files     the Python files in the folder of a model or dataset, and their digest
copies    read-only copies of these files in the user's cache, and in run folders

dataset_preparation    runs the code of a dataset, checks the samples, and writes the arrays that nodes load
dataset_parts          samples and targets that code has returned
python_dataset         calls a function that returns arrays
torch_dataset          reads a map-style dataset of PyTorch, sample by sample
"""
