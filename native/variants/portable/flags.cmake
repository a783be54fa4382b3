# Any 64-bit machine: the compiler's baseline, no intrinsics. -O2 compiles the loops of sixteen lanes in less than half
# of -O3's time, and into faster code.
set(variant_flags -O2)
