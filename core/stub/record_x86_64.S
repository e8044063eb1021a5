// SPDX-License-Identifier: Apache-2.0
// The code that records a call. A template: RingHandOver copies it into the target once per site and number and
// fills in the literals at its end. It stands in read-only data, since nothing here runs it.
//
// It owns three registers, rcx and r11 (which the instruction clobbers) and rax, and no stack. Every other register
// holds the target's value at every instruction, so that a signal handler which looks at the registers (a garbage
// collector, a coroutine switch) sees what it must. rdx alone moves to rcx or r11 around each rdtsc.
// Nothing of the stub's own outlives `syscall`. What must, stands in the CallEntry that is found by rsp: no two calls
// under way have the same rsp. Between its return and the end, rax and the flags are there too; a register that is
// needed meanwhile is won by finding the entry again. lahf and seto take the flags that arithmetic changes; DF, AC
// and the others are never changed. All accesses are aligned, for targets that set AC.

#include "core/capture/ring_offsets.h"

#define MMAP 9
#define BRK 12
#define MAP_FIXED 0x10
#define PAGE_MASK 4095
#define SLOT_TRIES 256
#define CHUNK 64

  .section .rodata
  .globl whomap_record_begin, whomap_record_literals, whomap_record_end
  .hidden whomap_record_begin, whomap_record_literals, whomap_record_end

// The entries that rsp may have. The multiplier is 2^32 / golden ratio (Knuth, TAOCP 6.4); bits 32 and up of the
// product depend on all bits in which stacks differ.
.macro find_bucket register
  imul $-0x61c88647, %rsp, \register
  shr $(32 - WHOMAP_BUCKET_SHIFT), \register
  and $((WHOMAP_BUCKETS - 1) << WHOMAP_BUCKET_SHIFT), \register
  add .Lcalls(%rip), \register
.endm

// rcx = this call's entry, which exists. Changes the flags, keeps rax and r11.
.macro find_entry
  find_bucket %rcx
1:
  cmp %rsp, WHOMAP_CALL_KEY(%rcx)
  je 2f
  add $WHOMAP_CALL_BYTES, %rcx
  jmp 1b
2:
.endm

.macro save_flags
  lahf
  seto %al
.endm

// 127 + 1 overflows a byte, 127 + 0 does not; sahf leaves OF alone.
.macro restore_flags
  add $0x7f, %al
  sahf
.endm

  .balign 8, 0x90
whomap_record_begin:
  save_flags
  mov .Lcontrol(%rip), %rcx
  cmpl $WHOMAP_ARMED, WHOMAP_CONTROL_ARMED(%rcx)
  jne .Lunrecorded
  cmpl $MMAP, .Lnumber(%rip)
  jne .Lclaim_entry
// It takes memory away from others, which the ledger has to know of.
  test $MAP_FIXED, %r10b
  jnz .Lclaim_entry
  cmp WHOMAP_SETTINGS_MINIMUM_LENGTH(%rcx), %rsi
  jb .Ltoo_short
  cmpq $0, WHOMAP_SETTINGS_SAMPLE_INTERVAL(%rcx)
  je .Lclaim_entry
  mov %rsi, %r11
  lock xadd %r11, WHOMAP_CONTROL_SAMPLED_BYTES(%rcx)
  and WHOMAP_SETTINGS_SAMPLE_MASK(%rcx), %r11
  add %rsi, %r11
  jc .Lclaim_entry
  cmp WHOMAP_SETTINGS_SAMPLE_INTERVAL(%rcx), %r11
  jb .Lnot_sampled

.Lclaim_entry:
  mov %eax, %ecx
  find_bucket %r11
.Lnext_entry:
  mov WHOMAP_CALL_KEY(%r11), %rax
  cmp %rsp, %rax
  je .Labandoned
  test %rax, %rax
  jnz .Lentry_taken
  lock cmpxchg %rsp, WHOMAP_CALL_KEY(%r11)
  je .Lentry_claimed
.Lentry_taken:
  add $WHOMAP_CALL_BYTES, %r11
  test $(WHOMAP_BUCKET_BYTES - 1), %r11d
  jnz .Lnext_entry
  mov .Lcontrol(%rip), %r11
  lock incq WHOMAP_CONTROL_NO_PLACE(%r11)
  mov %ecx, %eax
  jmp .Lunrecorded

.Labandoned:
  mov .Lcontrol(%rip), %rax
  lock incq WHOMAP_CONTROL_ABANDONED(%rax)
.Lentry_claimed:
  mov %ecx, WHOMAP_CALL_FLAGS(%r11)
  movq $0, WHOMAP_CALL_ENTER_TSC(%r11)
  movq $0, WHOMAP_CALL_EXIT_TSC(%r11)
  mov .Lcontrol(%rip), %rax
  cmpl $0, WHOMAP_SETTINGS_TSC_USABLE(%rax)
  je .Lentered
  mov %rdx, %rcx
  rdtsc
  lfence
  mov %eax, WHOMAP_CALL_ENTER_TSC(%r11)
  mov %edx, WHOMAP_CALL_ENTER_TSC + 4(%r11)
  mov %rcx, %rdx
.Lentered:
  mov WHOMAP_CALL_FLAGS(%r11), %eax
  restore_flags
  mov .Lnumber(%rip), %eax
  syscall

  mov %rax, %r11
  save_flags
  find_bucket %rcx
.Lown_entry:
  cmp %rsp, WHOMAP_CALL_KEY(%rcx)
  je .Lreturned
  add $WHOMAP_CALL_BYTES, %rcx
  test $(WHOMAP_BUCKET_BYTES - 1), %ecx
  jnz .Lown_entry
  mov .Lcontrol(%rip), %rcx
  lock incq WHOMAP_CONTROL_UNPAIRED(%rcx)
  jmp .Lend_with_result

.Lreturned:
  mov %r11, WHOMAP_CALL_RESULT(%rcx)
  mov %eax, WHOMAP_CALL_FLAGS(%rcx)
  mov .Lcontrol(%rip), %rax
  cmpl $0, WHOMAP_CONTROL_ARMED(%rax)
  je .Lnot_armed
  cmpl $0, WHOMAP_SETTINGS_TSC_USABLE(%rax)
  je .Lenter_ring
  mov %rdx, %r11
  lfence
  rdtsc
  mov %eax, WHOMAP_CALL_EXIT_TSC(%rcx)
  mov %edx, WHOMAP_CALL_EXIT_TSC + 4(%rcx)
  mov %r11, %rdx
  mov .Lcontrol(%rip), %rax

.Lenter_ring:
  lock incq WHOMAP_CONTROL_INSIDE(%rax)
  cmpl $0, WHOMAP_CONTROL_ARMED(%rax)
  je .Lnot_armed_inside
  cmpl $0, WHOMAP_SETTINGS_RATE_LIMITED(%rax)
  je .Lwithin_rate
  cmpl $0, .Lalways(%rip)
  jne .Lwithin_rate
  cmpl $MMAP, .Lnumber(%rip)
  jne .Lunder_rate
  test $MAP_FIXED, %r10b
  jnz .Lwithin_rate
.Lunder_rate:
  mov WHOMAP_SETTINGS_RING(%rax), %r11
  lock decq WHOMAP_RING_TOKENS(%r11)
  js .Lover_rate

// How much of the stack can be copied: rax.
.Lwithin_rate:
  xor %r11d, %r11d
  cmpl $0, WHOMAP_SETTINGS_THREAD_BASE_USABLE(%rax)
  je .Lthread_base_known
  rdfsbase %r11
.Lthread_base_known:
  mov %r11, WHOMAP_CALL_THREAD_BASE(%rcx)
  test $7, %esp
  jnz .Lunaligned
  mov WHOMAP_SETTINGS_RING(%rax), %r11
  add WHOMAP_RING_CURRENT_TABLE(%r11), %r11
  mov %r11, WHOMAP_CALL_TABLE(%rcx)
  mov WHOMAP_TABLE_SEQUENCE(%r11), %rax
  mov %rax, WHOMAP_CALL_SEQUENCE(%rcx)
  test $1, %al
  jnz .Lunknown_stack
  mov WHOMAP_TABLE_COUNT(%r11), %rax
  test %rax, %rax
  jz .Lunknown_stack
  add $WHOMAP_TABLE_RANGES, %r11

// r11 = the last of rax ranges from r11 that starts at or below rsp, or the first
.Lhalve:
  cmp $1, %rax
  je .Lhalved
  mov %rax, %rcx
  shr %rcx
  sub %rcx, %rax
  shl $WHOMAP_RANGE_SHIFT, %rcx
  add %r11, %rcx
  cmp %rsp, (%rcx)
  cmovbe %rcx, %r11
  jmp .Lhalve
.Lhalved:
  find_entry
  cmp %rsp, (%r11)
  ja .Lunknown_stack
  mov 8(%r11), %rax
  mov WHOMAP_CALL_TABLE(%rcx), %r11
  mov WHOMAP_TABLE_SEQUENCE(%r11), %r11
  cmp %r11, WHOMAP_CALL_SEQUENCE(%rcx)
  jne .Lunknown_stack
  cmp %rsp, %rax
  jbe .Lunknown_stack
  mov WHOMAP_CALL_THREAD_BASE(%rcx), %r11
  cmp %rsp, %r11
  jbe .Lno_thread_base
  cmp %rax, %r11
  jae .Lno_thread_base
  mov %r11, %rax
  jmp .Lbounded
.Lno_thread_base:
  test $1, %al
  jnz .Lunknown_stack
.Lbounded:
  movl $WHOMAP_STACK_END_WHOLE, WHOMAP_CALL_STACK_END(%rcx)
  sub %rsp, %rax
  and $-8, %rax
  jmp .Llimit

// Where rsp is the start of a page, nothing proves that there is one: a thread that has not pushed anything.
.Lunknown_stack:
  find_entry
  movl $WHOMAP_STACK_END_PAGE, WHOMAP_CALL_STACK_END(%rcx)
  mov %rsp, %rax
  neg %rax
  and $PAGE_MASK, %eax

.Llimit:
  mov .Lcontrol(%rip), %r11
  cmp WHOMAP_SETTINGS_STACK_BYTES(%r11), %rax
  jbe .Lwithin_slot
  mov WHOMAP_SETTINGS_STACK_BYTES(%r11), %rax
  movl $WHOMAP_STACK_END_CAPACITY, WHOMAP_CALL_STACK_END(%rcx)
.Lwithin_slot:
  cmpl $BRK, .Lnumber(%rip)
  je .Lcopy_known
  mov %rdi, %r11
  sub %rsp, %r11
  ja .Lrange_above
// The range starts at or below rsp: what it holds may be gone (musl's threads unmap the stack they stand on).
  neg %r11
  and $~PAGE_MASK, %r11
  cmp %rsi, %r11
  jae .Lcopy_known
  xor %eax, %eax
  jmp .Lown_range
.Lrange_above:
  cmp %r11, %rax
  jbe .Lcopy_known
  mov %r11, %rax
  and $-8, %rax
.Lown_range:
  movl $WHOMAP_STACK_END_OWN_RANGE, WHOMAP_CALL_STACK_END(%rcx)
.Lcopy_known:
  mov %rax, WHOMAP_CALL_COPY_BYTES(%rcx)
  movl $SLOT_TRIES, WHOMAP_CALL_TRIES(%rcx)

// A slot. RingHead::claims points at the next one: free; or of this round, when its owner has not yet moved claims
// on; or still owned since an earlier round, and passed over; or complete since then: the ring is full.
.Lnext_slot:
  mov .Lcontrol(%rip), %rax
  mov WHOMAP_SETTINGS_RING(%rax), %r11
  mov WHOMAP_RING_CLAIMS(%r11), %r11
  mov %r11, WHOMAP_CALL_CLAIM(%rcx)
  and WHOMAP_SETTINGS_SLOT_MASK(%rax), %r11
  mov %r11, WHOMAP_CALL_INDEX(%rcx)
  mov WHOMAP_SETTINGS_STATES(%rax), %rax
  lea (%rax,%r11,8), %r11
// As late as can be: a child that takes a slot which it then must not write loses it to its parent.
  mov .Lcontrol(%rip), %rax
  cmpl $0, WHOMAP_CONTROL_ARMED(%rax)
  je .Lleave
  mov (%r11), %rax
  test $3, %al
  jnz .Lnot_free
  mov WHOMAP_CALL_CLAIM(%rcx), %rcx
  lea WHOMAP_SLOT_WRITING(,%rcx,4), %rcx
  lock cmpxchg %rcx, (%r11)
  je .Lslot_claimed
  find_entry
  jmp .Lretry
.Lnot_free:
  mov %rax, %r11
  shr $2, %r11
  cmp WHOMAP_CALL_CLAIM(%rcx), %r11
  je .Lmove_on
  and $3, %eax
  cmp $WHOMAP_SLOT_COMPLETE, %eax
  je .Lfull
.Lmove_on:
  mov WHOMAP_CALL_CLAIM(%rcx), %rax
  mov .Lcontrol(%rip), %r11
  mov WHOMAP_SETTINGS_RING(%r11), %r11
  lea 1(%rax), %rcx
  lock cmpxchg %rcx, WHOMAP_RING_CLAIMS(%r11)
  find_entry
.Lretry:
  decl WHOMAP_CALL_TRIES(%rcx)
  jnz .Lnext_slot
.Lfull:
  mov .Lcontrol(%rip), %rax
  mov WHOMAP_SETTINGS_RING(%rax), %rax
  lock incq WHOMAP_RING_DROPPED(%rax)
  jmp .Lleave

.Lslot_claimed:
  mov %rcx, %rax
  find_entry
  mov %rax, WHOMAP_CALL_CLAIMED(%rcx)
  mov %r11, WHOMAP_CALL_STATE(%rcx)
  mov WHOMAP_CALL_CLAIM(%rcx), %rax
  mov .Lcontrol(%rip), %r11
  mov WHOMAP_SETTINGS_RING(%r11), %r11
  lea 1(%rax), %rcx
  lock cmpxchg %rcx, WHOMAP_RING_CLAIMS(%r11)
  find_entry
  mov .Lcontrol(%rip), %rax
  mov WHOMAP_CALL_INDEX(%rcx), %r11
  imul WHOMAP_SETTINGS_SLOT_BYTES(%rax), %r11
  add WHOMAP_SETTINGS_SLOTS(%rax), %r11

.macro to_slot from, to
  mov \from(%rcx), %rax
  mov %rax, \to(%r11)
.endm
  to_slot WHOMAP_CALL_CLAIM, WHOMAP_SLOT_CLAIM
  to_slot WHOMAP_CALL_RESULT, WHOMAP_SLOT_RESULT
  to_slot WHOMAP_CALL_ENTER_TSC, WHOMAP_SLOT_ENTER_TSC
  to_slot WHOMAP_CALL_EXIT_TSC, WHOMAP_SLOT_EXIT_TSC
  to_slot WHOMAP_CALL_THREAD_BASE, WHOMAP_SLOT_THREAD_BASE
  to_slot WHOMAP_CALL_COPY_BYTES, WHOMAP_SLOT_COPY_BYTES
  mov WHOMAP_CALL_STACK_END(%rcx), %eax
  mov %eax, WHOMAP_SLOT_STACK_END(%r11)
  mov .Lsite(%rip), %eax
  mov %eax, WHOMAP_SLOT_SITE(%r11)
  mov .Lnumber(%rip), %eax
  mov %eax, WHOMAP_SLOT_NUMBER(%r11)
  mov %rdi, WHOMAP_SLOT_ARGUMENTS(%r11)
  mov %rsi, WHOMAP_SLOT_ARGUMENTS + 8(%r11)
  mov %rdx, WHOMAP_SLOT_ARGUMENTS + 16(%r11)
  mov %r10, WHOMAP_SLOT_ARGUMENTS + 24(%r11)
  mov %r8, WHOMAP_SLOT_ARGUMENTS + 32(%r11)
  mov %r9, WHOMAP_SLOT_ARGUMENTS + 40(%r11)
  mov %rsp, WHOMAP_SLOT_RSP(%r11)
  mov %rbp, WHOMAP_SLOT_RBP(%r11)
  mov %rbx, WHOMAP_SLOT_RBX(%r11)
  mov %r12, WHOMAP_SLOT_R12(%r11)
  mov %r13, WHOMAP_SLOT_R13(%r11)
  mov %r14, WHOMAP_SLOT_R14(%r11)
  mov %r15, WHOMAP_SLOT_R15(%r11)

// From the high end down, so that one register counts and tells the end. The control page is asked before each
// chunk: a child forked by a signal handler in here must stop writing into its parent's slot.
  mov WHOMAP_CALL_COPY_BYTES(%rcx), %rcx
.Lcopy_odd:
  test $(CHUNK - 1), %ecx
  jz .Lcopy_chunk
  mov -8(%rsp,%rcx), %rax
  mov %rax, WHOMAP_SLOT_STACK - 8(%r11,%rcx)
  sub $8, %rcx
  jmp .Lcopy_odd
.Lcopy_chunk:
  mov .Lcontrol(%rip), %rax
  cmpl $0, WHOMAP_CONTROL_ARMED(%rax)
  je .Lleave
  test %rcx, %rcx
  jz .Lcopied
  .set .Ldistance, 8
  .rept CHUNK / 8
  mov -.Ldistance(%rsp,%rcx), %rax
  mov %rax, WHOMAP_SLOT_STACK - .Ldistance(%r11,%rcx)
  .set .Ldistance, .Ldistance + 8
  .endr
  sub $CHUNK, %rcx
  jmp .Lcopy_chunk

.Lcopied:
  find_entry
  mov WHOMAP_CALL_STATE(%rcx), %r11
  mov WHOMAP_CALL_CLAIMED(%rcx), %rax
  lea (WHOMAP_SLOT_COMPLETE - WHOMAP_SLOT_WRITING)(%rax), %rcx
  lock cmpxchg %rcx, (%r11)
  je .Lleave
// The reader has given this call up, and keeps the slot out of use until its owner is through with it.
  find_entry
  mov WHOMAP_CALL_CLAIMED(%rcx), %rcx
  lea (WHOMAP_SLOT_RETIRED - WHOMAP_SLOT_WRITING)(%rcx), %rax
  lea (WHOMAP_SLOT_FREE - WHOMAP_SLOT_WRITING)(%rcx), %rcx
  lock cmpxchg %rcx, (%r11)

.Lleave:
  mov .Lcontrol(%rip), %rax
  lock decq WHOMAP_CONTROL_INSIDE(%rax)
.Lrelease_entry:
  find_entry
  mov WHOMAP_CALL_FLAGS(%rcx), %eax
  mov WHOMAP_CALL_RESULT(%rcx), %r11
  movq $0, WHOMAP_CALL_KEY(%rcx)
.Lend_with_result:
  restore_flags
  mov %r11, %rax
  jmp .Lend

.Lunaligned:
  movl $WHOMAP_STACK_END_UNALIGNED, WHOMAP_CALL_STACK_END(%rcx)
  xor %eax, %eax
  jmp .Lcopy_known

.Lover_rate:
  lock incq WHOMAP_RING_TOKENS(%r11)
  lock incq WHOMAP_RING_OVER_RATE(%r11)
  jmp .Lleave

.Lnot_armed_inside:
  lock decq WHOMAP_CONTROL_INSIDE(%rax)
.Lnot_armed:
  lock incq WHOMAP_CONTROL_UNARMED_RETURNS(%rax)
  jmp .Lrelease_entry

.Ltoo_short:
  lock incq WHOMAP_CONTROL_TOO_SHORT(%rcx)
  lock add %rsi, WHOMAP_CONTROL_TOO_SHORT_BYTES(%rcx)
  jmp .Lunrecorded
.Lnot_sampled:
  lock incq WHOMAP_CONTROL_NOT_SAMPLED(%rcx)
  lock add %rsi, WHOMAP_CONTROL_NOT_SAMPLED_BYTES(%rcx)
.Lunrecorded:
  restore_flags
  mov .Lnumber(%rip), %eax
  syscall
  jmp .Lend

  .balign 8, 0x90
whomap_record_literals:
.Lcontrol: .quad 0
.Lcalls: .quad 0
.Lnumber: .long 0
.Lsite: .long 0
.Lalways: .long 0
  .long 0
.Lend:
whomap_record_end:

  .section .note.GNU-stack, "", @progbits
