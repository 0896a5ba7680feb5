// From reset to Rust: one CPU at EL1, exceptions caught, stacks, zeroed data, floating point.
// Rust code that runs before the MMU is on relies on the target's `strict-align`.

    .section .text.boot, "ax"
    .global _start
_start:
    msr daifset, #0xf
    adr x1, 1f
    mov x2, #0x3c4                  // exceptions masked, EL1 with SP_EL0
    mrs x0, CurrentEL
    lsr x0, x0, #2
    cmp x0, #2
    b.lo 1f
    mov x3, #(1 << 31)              // HCR_EL2.RW: EL1 is AArch64
    msr hcr_el2, x3
    b.hi 3f
    mov x3, #0x33ff                 // CPTR_EL2: no traps of FP and SIMD
    msr cptr_el2, x3
    msr spsr_el2, x2
    msr elr_el2, x1
    eret
3:  mov x3, #0x431                  // SCR_EL3: EL1 is AArch64 and not secure
    msr scr_el3, x3
    msr cptr_el3, xzr
    msr spsr_el3, x2
    msr elr_el3, x1
    eret

    // EL1. Exceptions have a stack of their own.
1:  msr spsel, #1
    ldr x0, =__exception_stack_end
    mov sp, x0
    msr spsel, #0
    ldr x0, =__stack_end
    mov sp, x0
    ldr x0, =vectors
    msr vbar_el1, x0
    mov x0, #(3 << 20)              // CPACR_EL1.FPEN
    msr cpacr_el1, x0
    isb
    msr fpcr, xzr                   // round to nearest even, subnormals kept

    ldr x0, =__bss_start
    ldr x1, =__bss_end
2:  cmp x0, x1
    b.hs 4f
    stp xzr, xzr, [x0], #16
    b 2b

    // What the program leaves of this pattern tells how much stack it used.
4:  ldr x0, =__stack_start
    ldr x1, =__stack_end
    ldr x2, =0x5a5a5a5a5a5a5a5a
5:  stp x2, x2, [x0], #16
    cmp x0, x1
    b.lo 5b

    bl kinglet_bare_mmu
    b kinglet_bare_main

    // Sixteen entries of 128 bytes. Interrupts are masked; whatever arrives is a fault.
    .macro vector number
    .balign 0x80
    mov x0, #\number
    b fault
    .endm

    .balign 0x800
vectors:
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vector \number
    .endr

fault:
    // From SP_EL1 means: in the handler below. It would not get further the second time.
    cmp x0, #4
    b.hs 6f
    mrs x1, esr_el1
    mrs x2, far_el1
    mrs x3, elr_el1
    b kinglet_bare_fault
6:  ldr x1, =double_fault
    mov x0, #0x18                   // SYS_EXIT
    hlt #0xf000
7:  wfe
    b 7b

    .section .rodata
    .balign 8
double_fault:
    .quad 0x20026, 3                // ADP_Stopped_ApplicationExit, exit code
