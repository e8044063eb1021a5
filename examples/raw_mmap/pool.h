/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POOL_H
#define POOL_H
#include <stddef.h>

/* A slab to work in. Each comes from the kernel. */
void *pool_take(size_t bytes);
/* "Returns" a slab. The pool forgets it: this is the leak. */
void pool_give(void *slab, size_t bytes);
/* A short-lived buffer, unmapped again by pool_scratch_end(): balanced traffic through the same path. */
void *pool_scratch(size_t bytes);
void pool_scratch_end(void *buffer, size_t bytes);
#endif
