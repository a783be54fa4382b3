set(variant_base neon)
set(variant_processors "^(aarch64|arm64)$")
set(variant_flags -march=armv8.2-a+dotprod+i8mm)
