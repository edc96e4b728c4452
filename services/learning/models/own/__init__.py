"""Models that the user has written.

base                fields and code that all kinds share
checked_samples     random samples of a learning task, with which the code is checked before anything starts
result_checks       checks of loss, gradient and outputs
python_model        class of the user that computes with NumPy or CuPy
python_checks       checks of such a class
torch_model         class of the user that is a module of PyTorch
torch_network       the module, with its parameters as views of the parameter vector
torch_loss          loss of training of the module: that of the task, or a function of the user
torch_gradients     gradients of the module, written to one vector during the backward pass
"""
