"""Gate on ptxas' resource report: no kernel may spill registers or use a stack frame.

python .ci/check_resources.py BUILD_LOG ARCHITECTURE...

BUILD_LOG is the output of a build with `-Xptxas=-v`; every ARCHITECTURE (such as sm_90a) must appear in it.
Prints one line a function.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '(?P<architecture>[^']+)'")
FUNCTION = re.compile(r"Function properties for (?P<name>\S+)")
FRAME = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
)
REGISTERS = re.compile(r"Used (?P<registers>\d+) registers")


class Function(NamedTuple):
    name: str
    architecture: str
    stack: int
    spills: int
    registers: int | None  # None for a function that is called and not a kernel

    @property
    def clean(self) -> bool:
        return self.stack == 0 and self.spills == 0


def functions(log: str) -> list[Function]:
    found: list[Function] = []
    name = architecture = "?"
    for line in log.splitlines():
        if match := ENTRY.search(line):
            name, architecture = match["name"], match["architecture"]
        elif match := FUNCTION.search(line):
            name = match["name"]
        elif match := FRAME.search(line):
            spills = int(match["stores"]) + int(match["loads"])
            found.append(Function(name, architecture, int(match["stack"]), spills, None))
        elif (match := REGISTERS.search(line)) and found:
            found[-1] = found[-1]._replace(registers=int(match["registers"]))
    return found


def demangled(names: list[str]) -> list[str]:
    try:
        answer = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return names
    return answer.stdout.splitlines()


def main(log: str, architectures: list[str]) -> int:
    report = functions(Path(log).read_text())
    for function, name in zip(report, demangled([function.name for function in report]), strict=True):
        verdict = "ok  " if function.clean else "FAIL"
        print(
            f"{verdict} {function.architecture:8} {function.registers or '-':>3} registers, "
            f"{function.stack} bytes of stack, {function.spills} bytes of spills: {name}"
        )
    missing = sorted(set(architectures) - {function.architecture for function in report})
    dirty = sum(not function.clean for function in report)
    print(
        f"{len(report)} functions; {dirty} with spills or a stack frame" + (f"; none for {missing}" if missing else "")
    )
    return int(dirty > 0 or bool(missing) or not report)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
