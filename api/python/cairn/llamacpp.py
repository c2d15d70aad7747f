# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's state of sequences in a store: by its C API, for llama-cpp-python, and from slot files of llama-server.

    llm = llama_cpp.Llama("model.gguf", n_ctx=4096)
    llm.set_cache(cairn.llamacpp.Cache(store))       # Chats go on after a restart.

Context is for programs that call llama.cpp themselves; `cairn llama put|get|serve-slots`, which is
`python -m cairn.llamacpp` as well, for llama-server. The rows of each layer lie in the store as in any other engine's
branch, so that a state is written incrementally, cut at any token, found by its prefix and forked.

Needs llama.cpp as a library: the package llama-cpp-python or xllamacpp, or any libllama.so; slot files need none.
"""

import sys

from ._llama_cache import Cache
from ._llama_command import main
from ._llama_context import Context, Sequence

__all__ = ["Cache", "Context", "Sequence"]

if __name__ == "__main__":
    sys.exit(main())
