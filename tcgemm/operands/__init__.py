"""The kinds of operands that are no plain tensors, and the functions that make and multiply them.

    quant      8-bit values with scales, and the linear layer that multiplies them
    packed     weights of 4 and 8 bits an element, beside 16-bit activations
    sparse     2:4 sparsity
    integers   int4 and bits

docs/dev/add-an-operand.md says how an operand of a kind enters a product.
"""
