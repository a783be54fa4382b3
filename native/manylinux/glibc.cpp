// Lets a wheel that is linked on a new system run on glibc 2.17 and later (manylinux2014).
//
// glibc 2.34 moved the thread functions from libpthread into libc and gave them a new version. A program that is linked
// against it asks for that version and starts on no older system, although the functions are the same. The linker sends
// the calls of the static libstdc++ here (--wrap), and from here they go to the first version, which every glibc has.
// Before 2.34 that version lives in libpthread, which Python has always loaded.
#include <pthread.h>

#if defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST_VERSION "GLIBC_2.17"
#endif
#define FIRST(name) __asm__(".symver first_" #name ", pthread_" #name "@" FIRST_VERSION)

extern "C" {
FIRST(create);
FIRST(detach);
FIRST(join);
FIRST(once);
int first_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
int first_detach(pthread_t);
int first_join(pthread_t, void**);
int first_once(pthread_once_t*, void (*)());

int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  return first_create(thread, attributes, body, argument);
}
int __wrap_pthread_detach(pthread_t thread) { return first_detach(thread); }
int __wrap_pthread_join(pthread_t thread, void** result) { return first_join(thread, result); }
int __wrap_pthread_once(pthread_once_t* once, void (*body)()) { return first_once(once, body); }

// glibc 2.32's hint that reference counts need no atomic operations. False is always right.
char __libc_single_threaded = 0;

// glibc 2.36; only std::random_device calls it, which the kernels never use: their randomness is a function of the
// seed.
unsigned arc4random() { __builtin_trap(); }
}
