"""tcgemm inside of other libraries. Each module imports its library, and registers with it.

transformers      from_pretrained and save_pretrained of models with tcgemm's layers
peft              LoRA on layers with 8-bit and with sparse weights
tensor_parallel   ColwiseParallel, RowwiseParallel and SequenceParallel for these layers
fsdp2             an all-gather of weights in float8
pipelining        the tracer of pipelines for these layers
"""
