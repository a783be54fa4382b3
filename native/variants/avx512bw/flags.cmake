set(variant_base avx512)
set(variant_processors "x86_64|AMD64")
set(variant_flags -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
