"""Facts about the environment of a command, as it is on the host or in an image; set by Ensayo."""

from pydantic import Field

from services.schema.component import FrozenRecord


class CommandInterpreter(FrozenRecord):
    """Python interpreter that runs a command, as it is installed on the host or in an image; set by Ensayo."""

    path: str  # absolute
    version: str  # such as 3.11.2
    packages: tuple[str, ...] = ()  # absolute paths of the folders with its installed packages
    missing: tuple[str, ...] = ()  # names of required modules that it can't find
    outside: dict[str, str] = Field(
        {}
    )  # folders of required modules that it finds elsewhere, such as through .pth files

    @property
    def minor_version(self) -> str:
        """Major and minor version, such as 3.11: packages are built for one of these."""
        return ".".join(self.version.split(".")[:2])


class InstalledRequirements(FrozenRecord):
    """Packages that pip has installed for the requirements file of a command; set by Ensayo."""

    sha256: str  # digest of the texts of the file, and of the files that it includes
    packages: tuple[str, ...]  # lines of `pip freeze`, such as numpy==2.1.0


class CommandImage(FrozenRecord):
    """Container image of the user in which a command runs, as it is on the Docker engine; set by Ensayo."""

    id: str  # such as sha256:4bc1…
    search_path: str  # its variable PATH
    python_path: str = ""  # its variable PYTHONPATH
