"""Code of the user on the host.

files     the Python files in the folder of a model, and their digest
copies    read-only copies of these files in the user's cache, and in run folders
"""
