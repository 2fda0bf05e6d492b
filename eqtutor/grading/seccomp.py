"""The system calls that are closed inside a sandbox, as a filter in Linux's classic BPF.

bubblewrap's namespaces part files, processes and the network. Three things they leave open: keys in
the kernel's keyring belong to the user and not to a namespace; memory that belongs to no process
(System V segments, anonymous files) is in nobody's account; and what looks into other processes or
programs the kernel has no business in an answer. A closed call fails with EPERM.

Linux on x86-64 and on 64-bit ARM has a filter; elsewhere there is none, and every result says so.
"""
# Plain module: edited by hand, no notebook exports it.
import platform
import struct
import sys

# number of a call on x86-64 and on 64-bit ARM
KEYRING = {'add_key': (248, 217), 'request_key': (249, 218), 'keyctl': (250, 219)}
MEMORY_OF_NOBODY = {
    'shmget': (29, 194), 'shmat': (30, 196), 'shmctl': (31, 195), 'shmdt': (67, 197),
    'semget': (64, 190), 'semop': (65, 193), 'semctl': (66, 191), 'semtimedop': (220, 192),
    'msgget': (68, 186), 'msgsnd': (69, 189), 'msgrcv': (70, 188), 'msgctl': (71, 187),
    'memfd_create': (319, 279), 'memfd_secret': (447, 447), 'mq_open': (240, 180)}
OTHERS = {
    'ptrace': (101, 117), 'process_vm_readv': (310, 270), 'process_vm_writev': (311, 271),
    'perf_event_open': (298, 241), 'bpf': (321, 280), 'userfaultfd': (323, 282),
    'pidfd_getfd': (438, 438), 'kcmp': (312, 272), 'process_madvise': (440, 440),
    'io_uring_setup': (425, 425), 'io_uring_enter': (426, 426), 'io_uring_register': (427, 427)}
CLOSED = KEYRING | MEMORY_OF_NOBODY | OTHERS

# Linux's constants: where the number and the machine stand, what a step does, what is answered
NUMBER, MACHINE = 0, 4
LOAD, IF_EQUAL, IF_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, KILL, EPERM = 0x7fff0000, 0x80000000, 0x00050000 | 1
MACHINES = {'x86_64': (0, 0xC000003E), 'aarch64': (1, 0xC00000B7)}
X32 = 0x40000000   # from here on x86-64 has a second set of numbers


def closing()->bytes|None:
    "The filter for this machine, as bubblewrap reads it; None where we have none."
    if sys.platform != 'linux' or sys.maxsize < 2**32: return None
    return program(platform.machine())


def program(machine:str)->bytes|None:
    "The filter for a machine: another machine's calls end the process, closed ones fail."
    if machine not in MACHINES: return None
    column, audit = MACHINES[machine]
    numbers = sorted(both[column] for both in CLOSED.values())
    steps = [(LOAD, 0, 0, MACHINE), (IF_EQUAL, 1, 0, audit), (RETURN, 0, 0, KILL),
             (LOAD, 0, 0, NUMBER)]
    # a jump counts the steps that it leaves out; the last two are ALLOW and EPERM
    tests = [(IF_AT_LEAST, X32), *((IF_EQUAL, n) for n in numbers)]
    steps += [(test, len(tests) - i, 0, n) for i, (test, n) in enumerate(tests)]
    steps += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, EPERM)]
    return b''.join(struct.pack('=HBBI', *step) for step in steps)
