/* SPDX-License-Identifier: Apache-2.0
 * A library that takes memory from the kernel without asking malloc or even mmap(): through syscall(2), as
 * libraries that hook mmap() have to. Built without frame pointers, as distributions did for decades. */
#define _GNU_SOURCE
#include "pool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *from_kernel(size_t bytes) {
  long address = syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
  if (address == -1) abort();
  return (void *)address;
}

__attribute__((noinline)) static void *pool_grow(size_t bytes) {
  void *slab = from_kernel(bytes);
  memset(slab, 1, bytes);
  return slab;
}

void *pool_take(size_t bytes) { return pool_grow(bytes); }

void pool_give(void *slab, size_t bytes) {
  (void)slab;
  (void)bytes; /* meant to go on a free list that nobody wrote */
}

void *pool_scratch(size_t bytes) {
  void *buffer = from_kernel(bytes);
  *(volatile char *)buffer = 1;
  return buffer;
}

void pool_scratch_end(void *buffer, size_t bytes) { syscall(SYS_munmap, buffer, bytes); }
