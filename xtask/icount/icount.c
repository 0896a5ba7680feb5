/*
 * icount: exact guest instruction counts of a program under QEMU's user mode (plugin API of 7.2), and
 * traces of some functions.
 *
 * No header of QEMU is needed: the few prototypes are written out below.
 *
 *   cc -O2 -fPIC -shared -o libicount.so icount.c
 *   qemu-aarch64 -plugin ./libicount.so,out=FILE[,pcs=on][,trace=START-END]... PROGRAM ...
 *
 * FILE gets `total N`, and with pcs=on a line `pc ADDRESS COUNT` for every instruction that ran, ADDRESS in hex.
 * Each trace=START-END (hex) gets lines `run I ADDRESS N`: N instructions from ADDRESS on were run one after the
 * other, as part of trace I; as many as TRACE_RUNS of them from the beginning.
 * Counters are plain additions in the translated code: exact for programs of one thread only.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
typedef struct {
    const char *target_name;
    struct { int min; int cur; } version;
    bool system_emulation;
    union { struct { int smp_vcpus; int max_vcpus; } system; };
} qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_CB_R_REGS, QEMU_PLUGIN_CB_RW_REGS };
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
typedef void (*tb_trans_cb)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*vcpu_udata_cb)(unsigned int, void *);
typedef void (*udata_cb)(qemu_plugin_id_t, void *);

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, tb_trans_cb);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, enum qemu_plugin_op, void *, uint64_t);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, vcpu_udata_cb, enum qemu_plugin_cb_flags,
                                                 void *);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, udata_cb, void *);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

/* A translated block: how often it ran, and the addresses of its instructions. */
struct block {
    uint64_t runs;
    size_t len;
    /* The trace that it belongs to, or null. */
    struct trace *trace;
    uint64_t pcs[];
};

enum { TRACES = 64, TRACE_RUNS = 200000 };

/* The blocks of an address range in the order of running. */
struct trace {
    uint64_t start, end;
    size_t len;
    const struct block *blocks[TRACE_RUNS];
};

static struct block **blocks;
static size_t count, capacity;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct trace traces[TRACES];
static size_t trace_count;
static bool with_pcs;
static FILE *out;

static void on_traced(unsigned int cpu, void *data)
{
    struct block *block = data;
    struct trace *trace = block->trace;
    if (trace->len < TRACE_RUNS)
        trace->blocks[trace->len++] = block;
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    size_t n = qemu_plugin_tb_n_insns(tb);
    struct block *block = calloc(1, sizeof *block + n * sizeof block->pcs[0]);
    if (!block)
        abort();
    block->len = n;
    for (size_t i = 0; i < n; i++)
        block->pcs[i] = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, i));
    for (size_t i = 0; i < trace_count; i++)
        if (n && traces[i].start <= block->pcs[0] && block->pcs[0] < traces[i].end)
            block->trace = &traces[i];
    pthread_mutex_lock(&lock);
    if (count == capacity) {
        capacity = capacity ? capacity * 2 : 4096;
        blocks = realloc(blocks, capacity * sizeof *blocks);
        if (!blocks)
            abort();
    }
    blocks[count++] = block;
    pthread_mutex_unlock(&lock);
    qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &block->runs, 1);
    if (block->trace)
        qemu_plugin_register_vcpu_tb_exec_cb(tb, on_traced, QEMU_PLUGIN_CB_NO_REGS, block);
}

static void at_exit(qemu_plugin_id_t id, void *unused)
{
    uint64_t total = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        total += blocks[i]->runs * blocks[i]->len;
    fprintf(out, "total %llu\n", (unsigned long long)total);
    for (size_t i = 0; with_pcs && i < count; i++)
        for (size_t k = 0; blocks[i]->runs && k < blocks[i]->len; k++)
            fprintf(out, "pc %llx %llu\n", (unsigned long long)blocks[i]->pcs[k],
                    (unsigned long long)blocks[i]->runs);
    for (size_t i = 0; i < trace_count; i++)
        for (size_t k = 0; k < traces[i].len; k++)
            fprintf(out, "run %zu %llx %zu\n", i, (unsigned long long)traces[i].blocks[k]->pcs[0],
                    traces[i].blocks[k]->len);
    fclose(out);
    pthread_mutex_unlock(&lock);
}

__attribute__((visibility("default")))
int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "out=", 4))
            out = fopen(argv[i] + 4, "w");
        else if (!strcmp(argv[i], "pcs=on"))
            with_pcs = true;
        else if (trace_count < TRACES && sscanf(argv[i], "trace=%" SCNx64 "-%" SCNx64, &traces[trace_count].start,
                                                &traces[trace_count].end) == 2)
            trace_count++;
        else
            fprintf(stderr, "icount: unknown argument %s\n", argv[i]);
    }
    if (!out) {
        fprintf(stderr, "icount: out=FILE is missing or cannot be written\n");
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
