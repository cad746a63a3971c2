"""``python -m tests.golden [NAME …]`` writes the golden records anew, all of them or the named files.

Read the difference before committing it: every line of it is a change of what users are told.
"""

import sys

from tests.golden.cases import FILES, FOLDER, text

for name in sys.argv[1:] or FILES:
    (FOLDER / f"{name}.json").write_text(text(name), encoding="utf-8")
