from surefoot.api import LLM as LLM
from surefoot.core import SamplingParams as SamplingParams

__version__: str
