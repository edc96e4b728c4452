"""A file that Python can't parse."""


class MyModel:
    def __init__(self, inputs, outputs)
        self.inputs = inputs
