/* A fake NVML library for tests, with two GPUs of different kinds. This process holds memory on the first GPU. Another
 * process uses the second GPU, which does not report its power. */
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NO_PERMISSION = 4, INSUFFICIENT_SIZE = 7 };

struct memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

struct utilization {
    unsigned gpu, memory;
};

int nvmlInit_v2(void) { return SUCCESS; }

int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 2;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) {
    if (index > 1)
        return INVALID_ARGUMENT;
    *gpu = (void *)(uintptr_t)(index + 1);
    return SUCCESS;
}

static unsigned index_of(void *gpu) { return (unsigned)(uintptr_t)gpu - 1; }

int nvmlDeviceGetName(void *gpu, char *name, unsigned length) {
    snprintf(name, length, "Make %u", index_of(gpu));
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *gpu, char *uuid, unsigned length) {
    snprintf(uuid, length, "GPU-%u%u%u", index_of(gpu), index_of(gpu), index_of(gpu));
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *gpu, struct utilization *busy) {
    busy->gpu = 50 + index_of(gpu);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *gpu, struct memory *memory) {
    memory->total = 80ULL << 30;
    memory->used = (60ULL + index_of(gpu)) << 30;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *gpu, unsigned *milliwatts) {
    *milliwatts = 411600;
    return index_of(gpu) == 0 ? SUCCESS : NO_PERMISSION;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, struct process *processes) {
    if (*count == 0) {
        *count = 1;
        return INSUFFICIENT_SIZE;
    }
    *count = 1;
    processes[0] = (struct process){index_of(gpu) == 0 ? (unsigned)getpid() : 1, 3ULL << 30, ~0U, ~0U};
    return SUCCESS;
}
