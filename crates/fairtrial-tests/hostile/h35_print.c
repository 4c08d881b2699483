/* Prints ten gigabytes of nothing. */
#include <unistd.h>

int main(void) {
    static char piece[1 << 16];
    for (long left = 10000000000; left > 0;) {
        ssize_t written = write(1, piece, sizeof piece);
        if (written < 0)
            return 1;
        left -= written;
    }
    return 0;
}
