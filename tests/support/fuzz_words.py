"""The words that random calls pass as strings, by the name of the argument."""

from tcgemm.typing import Activation, words

WORDS = {
    "activation": (None, *words(Activation), "", "tanh"),
    "precision": (None, "highest", "high", "medium", "promoted", "fast", "no"),
    "granularity": ("tensor", "row", "1x128", "128x128", ""),
    "pattern": ("2:4", "1:2", "2:4", "", "4:8"),
    "device": (None, "H200", "A100", "B9", ""),
    "kernel": (None, "", "sm80", "sm90a_bf16", "\0"),
    "dtype": (
        "bf16",
        "f16",
        "f32",
        "tf32",
        "f64",
        "e4m3",
        "e5m2",
        "s8",
        "u8",
        "s32",
        "s4",
        "u4",
        "b1",
        "",
    ),
    "types": (None, "s4,s4", "s4,u4", "u4,u4", "b1,b1", "s4,b1", "s4", ""),
    "weight_format": ("int4", "table4", "int8", "e4m3", "int3", ""),
    "scale_type": ("float32", "float16", "bfloat16", "e4m3", "e8m0", "int8", ""),
    "zeros": ("none", "points", "offsets", ""),
    "operation": (None, "and", "xor", "pm1", ""),
    "layout": ("TN", "NN", "TT", "NT", "", "XX"),
    "epilogue": ("", "bias", "relu,bias", "c,zero_a,zero_b", "amax,scale_out", ",", "tanh"),
    "sparse": ("", "a", "b", "c"),
    "arches": ("", "8.0", "8.0,9.0a", "9.0a,,", "x", "8.0@9.0", "+PTX", "99999999999.0"),
    "product": ("", "bf16 (accumulator f32), TN, m 1 n 1 k 1", "\0"),
    "choice": ("", "sm90a_bf16@1/1", "@/", "sm90a_bf16_f32_64x64x64_w1_s12_tn@1/99", "\0"),
    "name": ("", "NVIDIA H200", "NVIDIA A100-SXM4-80GB", "H200 " * 50),
}
for _alias, _name in (
    *(
        ("kernel_name", "kernel"),
        ("format", "weight_format"),
        ("scale_a", "granularity"),
        ("scale_b", "granularity"),
    ),
    *((name, "dtype") for name in ("dtype_b", "accumulator", "out_dtype")),
):
    WORDS[_alias] = WORDS[_name]
