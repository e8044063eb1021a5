// SPDX-License-Identifier: Apache-2.0
// Runs code with every register, the flags and the red zone set, and keeps what they are afterwards.
// Offsets are those of RecordedCall in ring_support.h.

  .text
  .globl whomap_test_call, whomap_test_return_on_rbx
  .hidden whomap_test_call, whomap_test_return_on_rbx
whomap_test_call:
  push %rbx
  push %rbp
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, 136(%rdi)
  mov 152(%rdi), %rax
  test %rax, %rax
  cmovnz %rax, %rsp
  push %rdi
  .set .Lplace, 16
  .rept 16
  movq $(0x5A000000 + .Lplace), -.Lplace(%rsp)
  .set .Lplace, .Lplace + 8
  .endr
  mov 8(%rdi), %rbx
  mov 24(%rdi), %rdx
  mov 32(%rdi), %rsi
  mov 48(%rdi), %rbp
  mov 56(%rdi), %r8
  mov 64(%rdi), %r9
  mov 72(%rdi), %r10
  mov 88(%rdi), %r12
  mov 96(%rdi), %r13
  mov 104(%rdi), %r14
  mov 112(%rdi), %r15
  mov 128(%rdi), %r11
  mov 0(%rdi), %rax
  mov 40(%rdi), %rcx
// The flags last, from where the return address will lie.
  sub $8, %rsp
  mov 120(%rdi), %rdi
  mov %rdi, (%rsp)
  mov %rcx, %rdi
  popfq
  call *%r11

  pop %rcx
  mov %rax, 0(%rcx)
  mov %rbx, 8(%rcx)
  mov %rdx, 24(%rcx)
  mov %rsi, 32(%rcx)
  mov %rdi, 40(%rcx)
  mov %rbp, 48(%rcx)
  mov %r8, 56(%rcx)
  mov %r9, 64(%rcx)
  mov %r10, 72(%rcx)
  mov %r12, 88(%rcx)
  mov %r13, 96(%rcx)
  mov %r14, 104(%rcx)
  mov %r15, 112(%rcx)
  pushfq
  pop %rax
  mov %rax, 120(%rcx)
  pushq $0x202
  popfq
  movq $0, 144(%rcx)
  .set .Lplace, 16
  .rept 16
  cmpq $(0x5A000000 + .Lplace), -.Lplace - 8(%rsp)
  je 1f
  incq 144(%rcx)
1:
  .set .Lplace, .Lplace + 8
  .endr
.Lback:
  mov 136(%rcx), %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbp
  pop %rbx
  ret

// Where the code cannot return, because the stack it ran on is gone: rbx has the RecordedCall.
whomap_test_return_on_rbx:
  mov %rbx, %rcx
  mov %rax, 0(%rcx)
  jmp .Lback

  .section .note.GNU-stack, "", @progbits
