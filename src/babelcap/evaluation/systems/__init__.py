"""Systems under test, one file each, behind one small protocol and under one table."""

from babelcap.evaluation.systems.protocol import Answer, System
from babelcap.evaluation.systems.settings import SystemOptions
from babelcap.evaluation.systems.table import SYSTEMS, SystemRow, open_system

__all__ = ["SYSTEMS", "Answer", "System", "SystemOptions", "SystemRow", "open_system"]
