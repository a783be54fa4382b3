# Any 64-bit machine: the compiler's baseline, no intrinsics.
set(variant_flags "")
