"""Layers of neural networks, each with its forward pass, its backward pass and its cost.

base              contract of a layer
initialisation    variances of initial weights
chain             composition of layers
dense             matrix product and bias
convolution       convolution of images
images            order of axes, padding, pooling and size of images
activations       element-wise functions
"""
