// SPDX-License-Identifier: Apache-2.0
// The SIGTRAP handler that lies in the target while int3 may be met there without a tracer: when GDB was killed. The
// int3 is behind the thread then, so that returning is all there is to do. Signals that are none of ours go to what
// was there before. Position-independent; copied to the start of a code area, and `data` filled in.
//
// data: 0 the old handler, 8 how many code areas, 16.. their addresses. Set before the handler is.

#define AREA_LIMIT 0x80000      /* core/stub/installation.cpp, area_limit */
#define UCONTEXT_RIP 168        /* offsetof(ucontext_t, uc_mcontext.gregs[REG_RIP]) */
#define SIGINFO_CODE 8          /* offsetof(siginfo_t, si_code) */
#define SIGTRAP 5
#define SYS_rt_sigaction 13
#define SYS_rt_sigreturn 15
#define SYS_getpid 39
#define SYS_gettid 186
#define SYS_tgkill 234

        .text
        .globl whomap_trap_template, whomap_trap_template_end
        .globl whomap_trap_handler, whomap_trap_restorer, whomap_trap_data
        .hidden whomap_trap_template, whomap_trap_template_end
        .hidden whomap_trap_handler, whomap_trap_restorer, whomap_trap_data

whomap_trap_template:
whomap_trap_handler:            // void handler(int, siginfo_t *rsi, void *rdx)
        endbr64
        mov     UCONTEXT_RIP(%rdx), %rax
        .byte   0x49, 0xB8      // movabs $data, %r8
whomap_trap_data:
        .quad   0
        mov     8(%r8), %rcx
        lea     16(%r8), %r9
1:      test    %rcx, %rcx
        jz      others
        mov     %rax, %r10
        sub     (%r9), %r10
        cmp     $AREA_LIMIT, %r10
        jb      done
        add     $8, %r9
        dec     %rcx
        jmp     1b
done:   ret

others: mov     (%r8), %rax
        cmp     $1, %rax        // SIG_DFL is 0, SIG_IGN 1
        jb      default
        je      ignored
        jmp     *%rax
ignored:
        cmpl    $0, SIGINFO_CODE(%rsi)
        jle     done            // sent by a process; a trap of the processor cannot be ignored (signal(7))
default:                        // as if there were no handler: the default action again, then the signal
        sub     $40, %rsp
        xor     %eax, %eax
        mov     %rax, (%rsp)
        mov     %rax, 8(%rsp)
        mov     %rax, 16(%rsp)
        mov     %rax, 24(%rsp)
        mov     $SIGTRAP, %edi
        mov     %rsp, %rsi
        xor     %edx, %edx
        mov     $8, %r10d
        mov     $SYS_rt_sigaction, %eax
        syscall
        mov     $SYS_getpid, %eax
        syscall
        mov     %eax, %edi
        mov     $SYS_gettid, %eax
        syscall
        mov     %eax, %esi
        mov     $SIGTRAP, %edx
        mov     $SYS_tgkill, %eax
        syscall
        add     $40, %rsp
        ret

whomap_trap_restorer:
        mov     $SYS_rt_sigreturn, %eax
        syscall
        ud2
whomap_trap_template_end:

        .section .note.GNU-stack, "", @progbits
