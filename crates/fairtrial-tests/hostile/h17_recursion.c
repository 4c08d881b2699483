/* Calls itself for ever. */
static volatile int depth;

__attribute__((noinline)) static int deeper(int n) {
    volatile char room[256];
    room[n & 255] = (char)n;
    depth = n;
    return deeper(n + 1) + room[n & 255];
}

int main(void) { return deeper(0) == 0; }
