set(variant_base avx2)
set(variant_processors "x86_64|AMD64")
set(variant_flags -mavx2 -mfma -mf16c -mavxvnni)
