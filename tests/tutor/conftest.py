"What these tests share."
from tests.students import as_reader, students  # noqa: F401
