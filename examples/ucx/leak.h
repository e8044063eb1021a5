/* SPDX-License-Identifier: Apache-2.0 */
/* shared timing helper for the cases: leak on a schedule, exit by itself */
#ifndef LEAK_H
#define LEAK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <errno.h>
#include <sys/types.h>
#define NOINL __attribute__((noinline,noclone,optimize("no-optimize-sibling-calls")))
static double t_now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec+t.tv_nsec*1e-9;}
static double t_dur(void){const char*s=getenv("LEAK_SECS");return s?atof(s):115.0;}
static void nap_ms(int ms){struct timespec t={ms/1000,(ms%1000)*1000000L};nanosleep(&t,NULL);}
#define KEEP(p) __asm__ volatile("" :: "r"(p) : "memory")
#endif
