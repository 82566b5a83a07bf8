"""tcgemm inside of other libraries. Each module imports its library, and registers with it.

transformers   from_pretrained and save_pretrained of models with tcgemm's layers
"""
