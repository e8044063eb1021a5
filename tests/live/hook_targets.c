/* SPDX-License-Identifier: Apache-2.0
 * D01: libraries with the shape of UCX, compiled three times: as libucs (a pool that grows), as libucm (hooks that a
 * program calls in place of mmap and munmap), and as the program, whose callers look like CPython's arenas. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void *ucm_orig_mmap_syscall(size_t bytes);
void ucs_mpool_grow(size_t bytes);
void *ucm_mmap(size_t bytes);
void ucm_munmap(void *address, size_t bytes);

#ifdef UCS
void ucs_mpool_grow(size_t bytes) {
  char *chunk = ucm_orig_mmap_syscall(bytes);
  for (size_t at = 0; at < bytes; at += 4096) chunk[at] = 1; /* the queue is never drained */
}
#elif defined UCM
void *ucm_orig_mmap_syscall(size_t bytes) {
  return (void *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
}
void *ucm_mmap(size_t bytes) {
  char *mapped = ucm_orig_mmap_syscall(bytes);
  mapped[0] = 1;
  return mapped;
}
void ucm_munmap(void *address, size_t bytes) {
  static unsigned entries;
  if (LEAKS && ++entries % 8 == 0) ucs_mpool_grow(65536u << (entries / 8 % 6)); /* 64 KiB .. 2 MiB */
  syscall(SYS_munmap, address, bytes);
}
#else
__attribute__((noinline)) void *_PyMem_ArenaAlloc(size_t bytes) { return ucm_mmap(bytes); }
__attribute__((noinline)) void _PyMem_ArenaFree(void *arena, size_t bytes) { ucm_munmap(arena, bytes); }

int main(void) {
  char line[8];
  puts("ready");
  fflush(stdout);
  if (!fgets(line, sizeof line, stdin)) return 1;
  for (;;) {
    _PyMem_ArenaFree(_PyMem_ArenaAlloc(1 << 20), 1 << 20);
    const struct timespec pause = {0, 5 * 1000 * 1000};
    nanosleep(&pause, NULL);
  }
}
#endif
