"""The job file and the options that stand for one, turned into values."""

from headway.config.job import Job, build_job, load_job
from headway.config.reading import Source, convert
from headway.config.schema import JobFile

__all__ = ["Job", "JobFile", "Source", "build_job", "convert", "load_job"]
