/* SPDX-License-Identifier: Apache-2.0 */
/* modes: invq    - UCS rcache with a registration that never returns: every
 *                  munmap() in the process queues an invalidation entry taken
 *                  from the rcache mpool -> ucs_mpool_grow() mmaps inside munmap
 *        appmmap - the application leaks mmaps; hooks only add frames
 *        malloc  - the application leaks large mallocs (glibc sysmalloc->mmap)
 *        pgt     - live rcache with ever more regions held (pgtable dirs from the mpool + region structs) */
#include "leak.h"
#include <ucp/api/ucp.h>
#include <ucs/memory/rcache.h>
#include <ucm/api/ucm.h>
#include <sys/mman.h>
#include <pthread.h>

void *ucm_orig_dlsym_sbrk(intptr_t inc);   /* exported by libucm, not in its header */
static volatile int in_reg;
static int slow_reg;
static ucs_status_t dummy_reg(void *c, ucs_rcache_t *r, void *arg, ucs_rcache_region_t *reg, uint16_t f)
{
    if (slow_reg) { in_reg = 1; for (;;) pause(); }   /* driver call that never returns */
    return UCS_OK;
}
static void dummy_dereg(void *c, ucs_rcache_t *r, ucs_rcache_region_t *reg) {}
static void dummy_dump(void *c, ucs_rcache_t *r, ucs_rcache_region_t *reg, char *b, size_t m) { if (m) b[0] = 0; }
static ucs_rcache_ops_t ops = { dummy_reg, dummy_dereg, dummy_dump };
static ucs_rcache_t *rc;

static void *registrar(void *p)
{
    ucs_rcache_region_t *reg;
    ucs_rcache_get(rc, p, 65536, PROT_READ|PROT_WRITE, NULL, &reg);
    return NULL;
}
NOINL static void *scratch_get(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) { perror("mmap"); exit(1); }
    *(volatile char *)p = 1;
    return p;
}
NOINL static int scratch_put(void *p, size_t n)
{
    int r = munmap(p, n); KEEP(r);
    return r;
}
NOINL static void handle_request(size_t n)
{
    void *p = scratch_get(n);
    scratch_put(p, n);
    KEEP(p);
}
NOINL static void leak_mmap(size_t n)
{
    char *p = mmap(NULL, n, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) { perror("mmap"); exit(1); }
    memset(p, 1, n);
    KEEP(p);
}
NOINL static void leak_malloc(size_t n)
{
    char *p = malloc(n);
    memset(p, 1, n);
    KEEP(p);
}
int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "invq";
    double dur = t_dur();
    if (getenv("PRE_DLSYM")) ucm_orig_dlsym_sbrk(0);  /* reloc mode of 1.13 on glibc 2.36 self-deadlocks in ucm_malloc_install otherwise */
    ucp_params_t par; ucp_worker_params_t wp; ucp_context_h ctx; ucp_worker_h w;
    memset(&par, 0, sizeof par); memset(&wp, 0, sizeof wp);
    par.field_mask = UCP_PARAM_FIELD_FEATURES;
    par.features   = UCP_FEATURE_TAG | UCP_FEATURE_RMA;
    if (ucp_init(&par, NULL, &ctx) != UCS_OK) return 2;
    wp.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE; wp.thread_mode = UCS_THREAD_MODE_MULTI;
    if (ucp_worker_create(ctx, &wp, &w) != UCS_OK) return 2;

    ucs_rcache_params_t rp; memset(&rp, 0, sizeof rp);
    rp.region_struct_size = sizeof(ucs_rcache_region_t) + 64;
    rp.alignment = UCS_RCACHE_MIN_ALIGNMENT; rp.max_alignment = 4096;
    rp.ucm_events = UCM_EVENT_VM_UNMAPPED; rp.ucm_event_priority = 1000;
    rp.ops = &ops; rp.context = NULL;
    rp.max_regions = (unsigned long)-1; rp.max_size = (size_t)-1; rp.max_unreleased = (size_t)-1;
    if (ucs_rcache_create(&rp, "dummy_md", NULL, &rc) != UCS_OK) return 3;
    double t0 = t_now();
    if (!strcmp(mode, "invq")) {
        double rate = 6000;               /* munmaps per second */
        pthread_t th; slow_reg = 1;
        pthread_create(&th, NULL, registrar, scratch_get(65536));
        while (!in_reg) usleep(1000);
        for (unsigned long n = 0; t_now() - t0 < dur; n++) {
            handle_request(8192);
            while (n > rate * (t_now() - t0)) nap_ms(2);
        }
        _exit(0);
    } else if (!strcmp(mode, "appmmap")) {
        for (; t_now() - t0 < dur; nap_ms(100)) { leak_mmap(64 << 10); handle_request(32768); }
    } else if (!strcmp(mode, "malloc")) {
        for (; t_now() - t0 < dur; nap_ms(200)) leak_malloc(200 << 10);
    } else if (!strcmp(mode, "pgt")) {
        /* far-apart regions: each one needs its own page-table directories */
        size_t span = 256ul << 30; char *base = mmap(NULL, span, PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) return 4;
        for (size_t off = 0; t_now() - t0 < dur && off < span; off += 1 << 20) {
            ucs_rcache_region_t *reg;
            if (ucs_rcache_get(rc, base + off, 4096, PROT_NONE, NULL, &reg) != UCS_OK) return 5;
            if ((off & ((16 << 20) - 1)) == 0) nap_ms(10);
        }
    }
    _exit(0);
}
