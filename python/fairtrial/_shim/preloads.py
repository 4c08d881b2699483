# Preloads: modules that the zygote imports once. A fork would share with every worker what they hold: descriptors,
# shared memory, the state of random generators. Each worker gets its own instead.
import gc as _gc
import os as _os
import stat as _stat_bits
import sys as _sys
from fcntl import F_GETFD as _F_GETFD
from fcntl import fcntl as _fcntl

_MOST_SHARED_BYTES = 1 << 30
_MOST_PROBED = 1 << 16  # numbers of descriptors that are tried where /proc is missing
_MOST_TOLD = 100
_PIECE = 1 << 16
_PAGE = _os.sysconf("SC_PAGE_SIZE")
_ZEROS = bytes(_PIECE)
_MAP_SHARED, _MAP_FIXED = 1, 16
# null, zero, full, random, urandom: what is done with one of these is seen by nobody else.
_STATELESS = frozenset((1, minor) for minor in (3, 5, 7, 8, 9))

if _libc:
    _libc.mmap.restype = _ctypes.c_void_p
    _libc.mmap.argtypes = [_ctypes.c_void_p, _ctypes.c_size_t] + [_ctypes.c_int] * 3 + [_ctypes.c_long]


class PreloadFailed(Exception):
    """A module cannot be preloaded: its name, and its own error or why not."""


class Preloads:
    """Imports modules, and knows what they hold that a fork would share."""

    def __init__(self, names, own, sharing=()):
        self.own = frozenset(own)  # descriptors of the shim
        self.closed = {}  # descriptors that were taken away: number and target
        self.shared = []
        self.generators = None
        holders = {}
        seen, allowed = set(), set()  # objects of memory; those that calls may share
        for name in (None, *names):  # None: the start of the interpreter itself
            if name is not None:
                try:
                    __import__(name)
                except BaseException as error:
                    raise PreloadFailed(name, error) from error
            for number in self.foreign_descriptors():
                holders.setdefault(number, name)
            now = set(_shared_objects()) if sharing else ()
            if name in sharing:
                allowed |= now - seen
            if sharing:
                seen |= now
            try:
                self.shared = find_shared_memory(allowed)
            except SetupFailed as error:
                raise PreloadFailed(name or "sitecustomize", error) from error
        self.holders = holders
        if self.shared:
            memory = _os.open("/proc/self/mem", _os.O_RDONLY | _os.O_CLOEXEC)
            for shared in self.shared:
                shared.read(memory)
            _os.close(memory)

    def foreign_descriptors(self):
        return [number for number in _open_descriptors() if number not in self.own and not _is_stateless(number)]

    def blank_descriptors(self):
        """Puts `/dev/null`, opened with O_PATH, in the place of each descriptor.

        O_PATH: neither read nor written, and without an offset, lock or owner that calls could share. Not closed: an
        object of the preload still has the number, and would close a file that the candidate opens under it.
        """
        tracker = getattr(_modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
        if getattr(tracker, "_fd", None) is not None:
            tracker._fd = tracker._pid = None  # a call that needs a tracker starts its own
        null = _os.open("/dev/null", _os.O_PATH | _os.O_CLOEXEC)
        for number in self.foreign_descriptors():
            if number != null:
                self.closed[number] = self.told(number)
                _os.dup2(null, number, False)
        _os.close(null)

    def told(self, number):
        try:
            target = _os.readlink("/proc/self/fd/%d" % number)
        except OSError:
            target = "unknown"
        holder = self.holders.get(number)
        return target[:500] + (" (preload `%s`)" % holder if holder else "")

    def report(self):
        """What users are told of at the start of a worker."""
        told = sorted(self.closed.items())[:_MOST_TOLD]
        return {number: target.encode("utf-8", "replace").decode() for number, target in told}

    def find_generators(self):
        """Late: nothing is imported after it."""
        self.generators = Generators(_gc.get_objects())

    def make_own(self):
        """In the worker, before any code of a call: memory and random numbers of its own."""
        for shared in self.shared:
            shared.make_own()
        self.generators.seed(None)


def _open_descriptors():
    try:
        return [int(name) for name in _os.listdir("/proc/self/fd") if _is_open(int(name))]
    except OSError:
        most = _os.sysconf("SC_OPEN_MAX")
        return [number for number in range(most if 0 < most < _MOST_PROBED else _MOST_PROBED) if _is_open(number)]


def _is_open(number):
    try:
        _fcntl(number, _F_GETFD)
    except OSError:
        return False
    return True


def _is_stateless(number):
    try:
        found = _os.fstat(number)
    except OSError:
        return True  # closed by a thread of the preload
    device = _os.major(found.st_rdev), _os.minor(found.st_rdev)
    return _stat_bits.S_ISCHR(found.st_mode) and device in _STATELESS


# -- memory


class SharedMemory:
    """One object that the zygote has mapped as shared: what it held after preloading, and where it is mapped.

    A worker gets a copy in the same places. That is shared too, with the processes that the call itself forks.
    """

    def __init__(self, path):
        self.path = path
        self.views = []  # (address, size, protection, offset)
        self.base = self.size = 0
        self.pieces = []  # (offset, bytes), without those that are zero

    def read(self, memory):
        self.base = min(offset for _, _, _, offset in self.views)
        self.size = max(offset + size for _, size, _, offset in self.views) - self.base
        seen = set()
        for address, size, _, offset in self.views:
            for at in range(0, size, _PIECE):
                place = offset - self.base + at
                if place not in seen:
                    seen.add(place)
                    self.read_piece(memory, address + at, place, min(_PIECE, size - at))

    def read_piece(self, memory, address, place, size):
        try:
            piece = _os.pread(memory, size, address)
        except OSError:  # past the end of a file
            if size > _PAGE:
                for at in range(0, size, _PAGE):
                    self.read_piece(memory, address + at, place + at, min(_PAGE, size - at))
            return
        if piece != _ZEROS[: len(piece)]:
            self.pieces.append((place, piece))

    def make_own(self):
        try:
            copy = _os.memfd_create("preload")
            _os.ftruncate(copy, self.size)
            for place, piece in self.pieces:
                _os.pwrite(copy, piece, place)
            for address, size, protection, offset in self.views:
                flags = _MAP_SHARED | _MAP_FIXED
                if _libc.mmap(address, size, protection, flags, copy, offset - self.base) != address:
                    errno = _ctypes.get_errno()
                    raise OSError(errno, _os.strerror(errno))
            _os.close(copy)
        except OSError as error:
            message = "cannot copy the memory `%s`, which a preload shares: %s" % (self.path, error.strerror)
            raise SetupFailed(message) from None


def _shared_objects():
    """Each mapping that a fork would share and that can be written to: its object, and the mapping's line."""
    try:
        maps = _read_file("/proc/self/maps")
    except OSError:
        return {}  # no /proc here, so no way to tell
    if not any(line.split(None, 2)[1:2][0][3:4] == "s" for line in maps.splitlines()):
        return {}
    try:
        maps = _read_file("/proc/self/smaps")
    except OSError:
        pass  # a kernel that does not tell the flags: then what can be read counts as written to
    found = {}
    for header, flags in _mappings(maps):
        _, permissions, _, device, inode = header.split(None, 5)[:5]
        if permissions[3:4] != "s" or (flags is not None and ("sh" not in flags or "dc" in flags)):
            continue  # private; or of a file opened for reading; or left out by `fork`
        found.setdefault((device, inode), []).append((header, flags))
    return found


def find_shared_memory(allowed=()):
    """What calls would share because a preload mapped it so that it can be written to, without what is `allowed`."""
    found = {}
    for key, mappings in _shared_objects().items():
        if key in allowed:
            continue
        for header, flags in mappings:
            place, permissions, offset, _, _, path = (header.split(None, 5) + [""])[:6]
            start, end = (int(part, 16) for part in place.split("-"))
            path = path.strip()
            if _is_of_device(path) or {"io", "pf"} & (flags or set()):
                raise SetupFailed(_refusal(path, end - start, "it belongs to a device or to the kernel"))
            protection = sum(bit for bit, letter in zip((1, 2, 4), permissions) if letter in "rwx")
            shared = found.setdefault(key, SharedMemory(path))
            shared.views.append((start, end - start, protection, int(offset, 16)))
    if not found:
        return []
    sizes = {shared: sum(size for _, size, _, _ in shared.views) for shared in found.values()}
    largest = max(sizes, key=sizes.get)
    why = None
    if sum(sizes.values()) > _MOST_SHARED_BYTES:
        why = "each call would need a copy of more than 1 GiB"
    elif not _libc or not hasattr(_os, "memfd_create"):
        why = "this interpreter has no `ctypes` or no `os.memfd_create` to copy it with"
    if why:
        raise SetupFailed(_refusal(largest.path, sizes[largest], why))
    return list(sizes)


def _read_file(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _mappings(text):
    """Each mapping's line, with its flags if these were told."""
    header = flags = None
    for line in text.splitlines():
        words = line.split(None, 1)
        if words[0] == "VmFlags:":
            flags = set(words[1].split()) if len(words) > 1 else set()
        elif not words[0].endswith(":"):
            if header:
                yield header, flags
            header, flags = line, None
    if header:
        yield header, flags


def _is_of_device(path):
    if path.startswith("anon_inode:"):
        return True
    return path.startswith("/dev/") and not path.startswith(("/dev/shm/", "/dev/zero", "/dev/hugepages/"))


def _refusal(path, size, why):
    return (
        "calls would share the memory `%s` (%d KiB), and %s; map it where it is used, read-only, or as a private copy, "
        "or let calls share it (`preload_shared`)"
    ) % (path or "without a name", size >> 10, why)


# -- generators of random numbers


class Generators:
    """Generators that preloads made, but for the global ones of `random` and numpy, which are seeded apart."""

    def __init__(self, objects):
        plain, bits, states = [], [], []
        random, numpy = _modules.get("random"), _modules.get("numpy.random")
        global_state = getattr(_modules.get("numpy.random.mtrand"), "_rand", None)
        known = {id(getattr(random, "_inst", None)), id(global_state)}
        known.add(id(getattr(global_state, "_bit_generator", None)))
        # A SystemRandom has no state: it is not collected.
        wanted = [(getattr(random, "SystemRandom", ()), None), (getattr(random, "Random", ()), plain)]
        wanted += [(getattr(numpy, "BitGenerator", ()), bits), (getattr(numpy, "RandomState", ()), states)]
        lists = {}  # by type: most objects are of few
        for each in objects:
            kind = type(each)
            if kind not in lists:
                lists[kind] = next((to for base, to in wanted if base and _is_derived(kind, base)), None)
            if lists[kind] is not None and id(each) not in known:
                lists[kind].append(each)
        self.plain, self.bits = _by_discovery(plain), _by_discovery(bits)
        self.states = states

    def seed(self, seed):
        """Seeds each differently: from `seed`, or without one at random. One that refuses is left as it is."""
        if not (self.plain or self.bits):
            return
        base = int.from_bytes(_os.urandom(16), "little") if seed is None else seed % (1 << 64)
        for number, generator in enumerate(self.plain, 1):
            try:
                generator.seed((base << 32) + number)
            except Exception:
                pass  # of a class of its own, which may have no use for one
        for number, generator in enumerate(self.bits, 1):
            try:
                _seed_bits(generator, (base << 32) + number)
            except Exception:
                pass
        for state in self.states:  # half of a pair of normal numbers may be waiting
            try:
                state.set_state(dict(state.get_state(legacy=False), has_gauss=0, gauss=0.0))
            except Exception:
                pass


def _seed_bits(generator, seed):
    new = type(generator)(seed)
    state = new.__reduce__()[2]
    if type(state) is tuple:
        generator.__setstate__(state)  # with what `spawn` draws from
    else:
        generator.state = new.state  # numpy before 1.26 or so


def _is_derived(kind, base):
    try:
        return issubclass(kind, base)
    except Exception:
        return False


def _by_discovery(things):
    """In the order in which a walk from the modules, by name, comes upon them: the garbage collector's own order
    depends on when it ran, and a seed must give each generator the same numbers in every zygote."""
    if len(things) < 2:
        return things
    missing = {id(thing) for thing in things}
    namespaces = {id(vars(module)) for module in _modules.values() if isinstance(module, _Module)}
    seen, order = set(namespaces), {}
    for name in sorted(_modules):
        reached = [vars(_modules[name])] if isinstance(_modules[name], _Module) else []
        while reached and missing:
            parts = _gc.get_referents(*reached)
            reached = []
            for part in parts:
                if id(part) not in seen and not isinstance(part, _Module):
                    seen.add(id(part))
                    reached.append(part)
                    if id(part) in missing:
                        missing.remove(id(part))
                        order[id(part)] = len(order)
    return sorted(things, key=lambda thing: order.get(id(thing), len(order)))
