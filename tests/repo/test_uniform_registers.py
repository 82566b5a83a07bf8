"""The loops of WGMMA take descriptors from uniform registers (docs/dev/kernels/sm90-dense.md).

A descriptor that a lane computes needs two R2UR for each operand, four for each WGMMA. ptxas
decides between the two, and says nothing.
"""

import re
import subprocess

import pytest

from tcgemm import _library, info

from support import machine_code

PLAIN = machine_code.EPILOGUE_PATHS.index("plain")
BRANCH = re.compile(r"BRA(?:\.\w+)? (?:UR\d+, )?0x([0-9a-f]+)")
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);")
LONGEST = 1000  # instructions of a k-block; loops over tiles have more
ROWS = [
    "bf16_f32_128x256x64_w2_s4_tn",
    "bf16_f32_192x192x64_w3_s4_tn",
    "bf16_f32_128x128x64_w2_s6_tn",
    "bf16_f32_64x64x64_w1_s12_tn",
    "bf16_f32_128x320x64_w2_s3_tn",
    "f16_f32_128x256x64_w2_s4_nn",
    "e4m3_f32_128x128x128_w2_s6_tn_pingpong",
    "s8_s32_128x128x128_w2_s6_tn",
    "e4m3_f32_128x256x128_w2_s4_tn_promoted",
    "e4m3_f32_64x128x128_w1_s8_tn_promoted",
    "e4m3_f32_128x256x128_w2_s4_tn_block_scaled",
    "e4m3_f32_64x64x128_w1_s12_tn_block_scaled",
    "e4m3_f32_192x128x128_w3_s4_tn_block_scaled",
]


def loops(row):
    """The instructions of each loop over k-blocks in the kernel of a row."""
    catalog = info.catalog()
    index = next(i for i, one in enumerate(catalog) if one["name"] == f"sm90a_{row}")
    if not catalog[index]["built"]:
        pytest.skip("the library does not have the kernel")
    mainloop = "Dense" if catalog[index]["mainloop"] == "dense" else "Promoted"
    function = f"_ZN6tcgemm7kernels4gemmILi{index}ELNS_12EpiloguePathE{PLAIN}ENS_4sm904Gemm"
    function += f"ENS3_{len(mainloop) + 8}{mainloop}MainloopENS_9TmaParamsEEEvT3_"
    command = [machine_code.find_cuobjdump(), "-sass", "-arch", "sm_90a", "-fun", function]
    command.append(str(_library.path()))
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    code = {int(at, 16): what for at, what in INSTRUCTION.findall(text)}
    found = []
    for end, what in code.items():
        branch = BRANCH.search(what)
        begin = int(branch[1], 16) if branch else end
        body = [one for at, one in code.items() if begin <= at <= end]
        if 1 < len(body) < LONGEST and any("GMMA" in one for one in body):
            found.append(body)
    return found


@pytest.mark.parametrize("row", ROWS)
def test_descriptors_are_uniform(row):
    bodies = loops(row)
    assert bodies, "the kernel has no loop with WGMMA"
    for body in bodies:
        multiplications = sum("GMMA" in one for one in body)
        moves = sum("R2UR" in one for one in body)
        assert moves <= 1.5 * multiplications, (len(body), moves, multiplications)
