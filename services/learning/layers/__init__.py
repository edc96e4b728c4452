"""Layers of neural networks, each with its forward pass, its backward pass and its cost.

base              contract of a layer
initialisation    variances of initial weights
chain             composition of layers
residual          sum of two paths
dense             matrix product and bias
convolution/      convolution of images
windows           windows that slide over images, for convolution and pooling
pooling           maximum and mean of windows of pixels
images            order of axes, padding and size of images
normalisation     batch normalisation and group normalisation
dropout           random zeros in training
activations       element-wise functions
sequences         layers for sequences: embeddings, attention, adapters
"""
