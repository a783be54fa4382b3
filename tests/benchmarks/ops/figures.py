"""Names of the operations' figures."""

NEEDED = {
    "w8_row1_of_bandwidth",
    "w4_row1_of_bandwidth",
    "w8_rows512_of_peak",
    "w4_rows512_of_peak",
    "attention_decode_of_bandwidth",
    "attention_prefill2k_share",
    "torch_bf16_row1_ratio",
    "torch_bf16_rows512_ratio",
    "call_overhead_share",
}
