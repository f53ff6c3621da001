// Where an access of a kernel is in its source, for messages. Part of checked.h.
#pragma once

#include <dlfcn.h>

namespace cuda_host {

static char library_path[1024];  // empty: where it was loaded from

// "file.cu:12", or "" if addr2line is not installed. Inlined functions of the headers in host/ are skipped.
CUDA_HOST_UNCHECKED static void describe_place(const void* place, char* text, size_t size) {
    text[0] = 0;
    Dl_info info;
    if (dladdr(place, &info) == 0) return;
    const char* path = library_path[0] ? library_path : info.dli_fname;
    if (strchr(path, '\'')) return;
    const uintptr_t base = reinterpret_cast<uintptr_t>(info.dli_fbase);
    const uintptr_t offset = reinterpret_cast<uintptr_t>(place) - 1 - (base < 0x500000 ? 0 : base);
    char command[1200], line[1200];
    snprintf(command, sizeof command, "addr2line -i -e '%s' 0x%lx 2>/dev/null", path, offset);
    FILE* answer = popen(command, "r");
    if (answer == nullptr) return;
    while (text[0] == 0 && fgets(line, sizeof line, answer)) {
        if (strncmp(line, __FILE__, sizeof __FILE__ - sizeof "places.h") == 0 || line[0] == '?') continue;
        const char* name = strrchr(line, '/');
        snprintf(text, size, "%s", name ? name + 1 : line);
        text[strcspn(text, " \n")] = 0;
    }
    while (fgets(line, sizeof line, answer)) {}
    pclose(answer);
}

CUDA_HOST_UNCHECKED static void describe_thread(int thread, char* text, size_t size) {
    const uint3 t = block.threads[thread].index;
    snprintf(text, size, "thread (%u, %u, %u)", t.x, t.y, t.z);
}

CUDA_HOST_UNCHECKED static const char* at_line(const void* place) {
    static char texts[2][200];
    static int next = 0;
    char* text = texts[next = 1 - next];
    char where[160];
    describe_place(place, where, sizeof where);
    snprintf(text, sizeof texts[0], where[0] ? "%s: " : "%s", where);
    return text;
}

}  // namespace cuda_host
