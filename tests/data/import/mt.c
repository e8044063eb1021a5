/* SPDX-License-Identifier: Apache-2.0
 * Three threads that map and unmap through syscall() and mremap, and keep one mapping in four. The program of the
 * logs in this folder (see README.md). */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static __attribute__((noinline)) void *take(size_t n) { long p = syscall(SYS_mmap, 0L, n, 3, 0x22, -1L, 0L); *(volatile char *)p = 1; return (void *)p; }
static __attribute__((noinline)) void keep(void) { take(65536); }
static __attribute__((noinline)) void pass(void) { void *p = take(131072); void *q = mremap(p, 131072, 262144, MREMAP_MAYMOVE); munmap(q, 262144); }
static void *worker(void *v) { (void)v; for (int i = 0; ; ++i) { pass(); struct timespec t = {0, 5000000}; nanosleep(&t, 0); if (i % 4 == 0) keep(); } return 0; }
int main(int c, char **a) {
  pthread_t t[3]; for (int i = 0; i < 3; ++i) pthread_create(&t[i], 0, worker, 0);
  void *seg = shmat(shmget(IPC_PRIVATE, 8192, IPC_CREAT | 0600), 0, 0);
  puts("ready"); fflush(stdout);
  double s = c > 1 ? atof(a[1]) : 5; struct timespec p = {0, 100000000};
  for (int i = 0; i < s * 10; ++i) { sbrk(4096); nanosleep(&p, 0); syscall(SYS_munmap, 1L, 4096L); }
  shmdt(seg);
  _exit(0); }
