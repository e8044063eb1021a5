// SPDX-License-Identifier: Apache-2.0
// A process that must not be harmed: under_load MODE [PACE]. 8 threads map, check and unmap memory, PACE microseconds apart
// (0: without a pause); one more does what MODE says, again and again. Says "ready". Orders on standard input: r: print
// "ROUNDS GOOD FAILURES CALLS" since the last time; x: exit; e: exec itself; t: set a SIGTRAP handler now; p: patch munmap as
// a hook library does; h: print whether the hook is still there and works; f: fork a child that
// lives on, print its pid; w: print whether it lives.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
enum { workers = 8, page = 4096 };

static unsigned long rounds, good, failures, calls;
static long pace_us = 8000;
static const char *mode, *program;
static volatile int handler_ready;
static unsigned long traps;

static void count(unsigned long *what) { __atomic_fetch_add(what, 1, __ATOMIC_RELAXED); }

static void sleep_us(long microseconds) {
  const struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
  if (microseconds > 0) clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

static void expect(int fine) {
  if (!fine) count(&failures);
}

// One mapping made, filled, moved, checked and given back.
static int map_and_check(int direct, unsigned pages) {
  const size_t size = pages * (size_t)page;
  const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
  unsigned char *at = direct ? (void *)syscall(SYS_mmap, NULL, size, protection, flags, -1, 0L)
                             : mmap(NULL, size, protection, flags, -1, 0);
  count(&calls);
  if (at == MAP_FAILED || at[0] != 0 || at[size - 1] != 0) return 0;
  memset(at, 0x5A, size);
  if (pages % 4 == 0) {
    at = mremap(at, size, 2 * size, MREMAP_MAYMOVE);
    count(&calls);
    if (at == MAP_FAILED || at[size] != 0) return 0;
  }
  const int kept = at[0] == 0x5A && at[size - 1] == 0x5A;
  const size_t whole = pages % 4 == 0 ? 2 * size : size;
  count(&calls);
  return kept && (direct ? syscall(SYS_munmap, at, whole) : munmap(at, whole)) == 0;
}

static void *work(void *argument) {
  const unsigned long own = (unsigned long)argument;
  if (!strcmp(mode, "blocked")) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
  }
  if (!strcmp(mode, "altstack")) {
    const stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&stack, NULL);
  }
  const long parent = getppid();
  for (unsigned long n = own;; ++n) {
    expect(map_and_check(n % 2, 1 + n % 9));
    errno = 0;
    expect(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
    for (int i = 0; i < 5; ++i) expect(syscall(SYS_getppid) == parent);
    sleep_us(pace_us);
  }
  return NULL;
}

static void on_signal(int signal, siginfo_t *info, void *context) {
  (void)context;
  if (signal == SIGTRAP) {
    count(&traps);
    return;
  }
  const int saved = errno;
  if (signal == SIGSEGV)
    mprotect((void *)((uintptr_t)info->si_addr & ~(uintptr_t)(page - 1)), page, PROT_READ | PROT_WRITE);
  else
    count(&rounds);
  const int fine = map_and_check(signal == SIGSEGV, 2);
  expect(fine);
  if (fine && signal != SIGSEGV) count(&good);
  errno = saved;
}

static void catch (int signal) {
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigaction(signal, &action, NULL);
}

static int ended_with_7(pid_t child, int options) {
  int status = 0;
  pid_t got = 0;
  while ((got = waitpid(child, &status, options)) < 0 && errno == EINTR) {
  }
  return got == child && WIFEXITED(status) && WEXITSTATUS(status) == 7;
}

static int child_works(void) { return map_and_check(0, 3) && map_and_check(1, 4) ? 7 : 1; }

static void *short_life(void *unused) {
  free(malloc(200000));
  expect(map_and_check(1, 3));
  count(&good);
  return unused;
}

static int cloned(void *unused) {
  (void)unused;
  _exit(child_works());
}

static int one_round(void) {
  if (!strcmp(mode, "fork")) {
    const pid_t child = fork();
    if (child == 0) _exit(child_works());
    return ended_with_7(child, 0);
  }
  if (!strcmp(mode, "vfork")) {
    const pid_t child = vfork();
    if (child == 0) _exit(child_works());
    return ended_with_7(child, 0);
  }
  if (!strcmp(mode, "vfork_exec")) {
    const pid_t child = vfork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
      _exit(1);
    }
    return ended_with_7(child, 0);
  }
  if (!strcmp(mode, "spawn")) {
    pid_t child = 0;
    char *const line[] = {(char *)"sh", (char *)"-c", (char *)"exit 7", NULL};
    return posix_spawn(&child, "/bin/sh", NULL, NULL, line, environ) == 0 && ended_with_7(child, 0);
  }
  if (!strcmp(mode, "clone")) {  // without a signal at its end, and with a stack of its own
    static char stack[1 << 16] __attribute__((aligned(16)));
    const pid_t child = clone(cloned, stack + sizeof stack, 0, NULL);
    return child > 0 && ended_with_7(child, __WALL);
  }
  if (!strcmp(mode, "raw_clone")) {
    const pid_t child = (pid_t)syscall(SYS_clone, 0L, 0L, 0L, 0L, 0L);
    if (child == 0) syscall(SYS_exit_group, child_works());
    return child > 0 && ended_with_7(child, __WALL);
  }
  if (!strcmp(mode, "system")) {
    const int status = system("exit 7");
    return WIFEXITED(status) && WEXITSTATUS(status) == 7;
  }
  if (!strcmp(mode, "popen")) {
    char line[9] = "";
    FILE *const pipe = popen("echo hello", "r");
    return pipe != NULL && fgets(line, sizeof line, pipe) != NULL && pclose(pipe) == 0 && !strcmp(line, "hello\n");
  }
  if (!strcmp(mode, "dlopen")) {
    void *const library = dlopen("libm.so.6", RTLD_NOW);
    double (*const cosine)(double) = library != NULL ? (double (*)(double))dlsym(library, "cos") : NULL;
    return cosine != NULL && cosine(0) == 1 && dlclose(library) == 0;
  }
  if (!strcmp(mode, "threads")) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, short_life, NULL) != 0) return 0;
    const int joined = pthread_join(thread, NULL) == 0;
    __atomic_fetch_sub(&good, 1, __ATOMIC_RELAXED);  // the thread has counted itself
    return joined;
  }
  if (!strcmp(mode, "segv")) {
    volatile char *const at = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return 0;
    at[1] = 3;
    return at[1] == 3 && munmap((void *)at, page) == 0;
  }
  if (!strcmp(mode, "int3") || (!strcmp(mode, "int3_late") && handler_ready)) {
    const unsigned long before = traps;
    __asm__ volatile("int3" ::: "memory");
    const int by_instruction = traps == before + 1;
    raise(SIGTRAP);
    return by_instruction && traps == before + 2;
  }
  return 1;
}

static void *special(void *unused) {
  const int is_signals = !strcmp(mode, "signals");
  if (!strcmp(mode, "detached")) {
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    while (1) {
      pthread_t thread;
      count(&rounds);
      expect(pthread_create(&thread, &detached, short_life, NULL) == 0);
      sleep_us(3000);
    }
  }
  while (1) {
    if (is_signals) {
      kill(getpid(), SIGUSR1);
      sleep_us(900);
      continue;
    }
    const int fine = one_round();
    if (fine) count(&good);
    count(&rounds);
    sleep_us(2000);
  }
  return unused;
}

// A program's own list of what it calls, everything else kills. rt_sigreturn is in all of them: any signal handler needs it.
static int allow_only_known_calls(void) {
  static const unsigned known[] = {SYS_mmap, SYS_munmap, SYS_mremap, SYS_brk, SYS_getppid, SYS_clock_nanosleep, SYS_restart_syscall,
                                   SYS_read, SYS_write, SYS_exit_group, SYS_rt_sigreturn, SYS_futex, SYS_rt_sigprocmask, SYS_clone,
                                   SYS_clone3, SYS_set_robust_list, SYS_rseq, SYS_mprotect, SYS_madvise, SYS_exit, SYS_newfstatat};
  enum { length = sizeof known / sizeof *known };
  struct sock_filter filter[length + 3];
  filter[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (unsigned char i = 0; i < length; ++i)
    filter[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, known[i], (unsigned char)(length - i), 0);
  filter[length + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  filter[length + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const struct sock_fprog rules = {length + 3, filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && 
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &rules) == 0;
}

static unsigned long hooked;
static unsigned char hook_jump[5];

static int hook_munmap(void *address, size_t size) {
  count(&hooked);
  return (int)syscall(SYS_munmap, address, size);
}

// As UCX's hooks do: a jump of 5 bytes over the entry of munmap, which is the instruction before its `syscall` too. The jump's
// reach ends at 2 GiB, so that it goes by a piece of code near the library.
static void patch_munmap(void) {
  unsigned char *const entry = (unsigned char *)dlsym(RTLD_NEXT, "munmap");
  unsigned char *const bridge = mmap(entry - (1ul << 28), page, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const uint64_t target = (uintptr_t)hook_munmap;
  memcpy(bridge, "\x48\xb8", 2);
  memcpy(bridge + 2, &target, sizeof target);
  memcpy(bridge + 10, "\xff\xe0", 2);
  const int32_t distance = (int32_t)(bridge - (entry + 5));
  hook_jump[0] = 0xe9;
  memcpy(hook_jump + 1, &distance, sizeof distance);
  void *const start = (void *)((uintptr_t)entry & ~(uintptr_t)(page - 1));
  mprotect(start, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC);
  memcpy(entry, hook_jump, sizeof hook_jump);
  mprotect(start, 2 * page, PROT_READ | PROT_EXEC);
}

static int hook_works(void) {
  const unsigned long before = hooked;
  return map_and_check(0, 1) && hooked > before && memcmp(dlsym(RTLD_NEXT, "munmap"), hook_jump, sizeof hook_jump) == 0;
}

static void start_threads(void) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, !strcmp(mode, "altstack") ? 16384 : 1 << 18);
  pthread_t thread;
  for (unsigned long i = 0; i < workers; ++i) pthread_create(&thread, &attributes, work, (void *)i);
  pthread_create(&thread, NULL, special, NULL);
}

int main(int argc, char **argv) {
  program = argv[0];
  mode = argc > 1 ? argv[1] : "none";
  if (argc > 2) pace_us = atol(argv[2]);
  catch (SIGUSR1);
  catch (SIGSEGV);
  if (!strcmp(mode, "int3")) catch (SIGTRAP);
  enum { mdwe = 65 /* PR_SET_MDWE, linux/prctl.h since 6.3 */ };
  if (!strcmp(mode, "mdwe") && prctl(mdwe, 1L, 0L, 0L, 0L) != 0) {
    puts("unsupported");
    fflush(stdout);
    return 0;
  }
  setvbuf(stdout, malloc(4096), _IOFBF, 4096);
  start_threads();
  if (!strcmp(mode, "seccomp") && !allow_only_known_calls()) return 1;
  puts("ready");
  fflush(stdout);
  pid_t child = 0;
  while (1) {
    char order = 0;
    const ssize_t got = read(0, &order, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got != 1 || order == 'x') exit(0);
    if (order == 'e') execl("/proc/self/exe", program, mode, "8000", (char *)NULL);
    if (order == 't') {
      catch (SIGTRAP);
      handler_ready = 1;
    }
    if (order == 'p') patch_munmap();
    if (order == 'h') printf("%s\n", hook_works() ? "hooked" : "broken");
    if (order == 'f') {  // a child that lives on, as those of a prefork server do
      child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (1) {
          if (!map_and_check(1, 3) || !map_and_check(0, 4)) _exit(9);
          sleep_us(500);
        }
      }
      printf("%d\n", child);
    }
    if (order == 'w') {  // is it still well?
      printf("%s\n", waitpid(child, NULL, WNOHANG) == 0 ? "lives" : "ended");
    }
    if (order == 'r')
      printf("%lu %lu %lu %lu\n", __atomic_exchange_n(&rounds, 0, __ATOMIC_SEQ_CST), __atomic_exchange_n(&good, 0, __ATOMIC_SEQ_CST),
             __atomic_exchange_n(&failures, 0, __ATOMIC_SEQ_CST), __atomic_exchange_n(&calls, 0, __ATOMIC_SEQ_CST));
    fflush(stdout);
  }
}
