"""Values of 8 bits with scales, and the linear layer that multiplies them."""
