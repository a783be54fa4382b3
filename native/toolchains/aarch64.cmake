# Cross-compiling for 64-bit ARM with Debian's g++-aarch64-linux-gnu:
#   cmake -S . -B build/aarch64 -G Ninja --toolchain native/toolchains/aarch64.cmake
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)
