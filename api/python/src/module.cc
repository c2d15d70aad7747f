// SPDX-License-Identifier: Apache-2.0
#include "api/python/src/common.h"
#include "cairn/store.h"

NB_MODULE(_core, module) {
  namespace python = cairn::python;
  namespace nb = python::nb;
  module.doc() = "The C++ part of the package cairn; import that.";
  module.attr("__version__") = cairn::Version();
  // At exit nothing is printed of what is still referenced (cairn/_exit.py).
  module.def("_end_quietly", [] { nb::set_leak_warnings(false); });
  python::BindErrors(module);
  python::BindDigest(module);
  python::BindRotary(module);
  python::BindLayers(module);
  python::BindRotateKeys(module);
  python::BindModel(module);
  python::BindState(module);
  python::BindKv(module);
  python::BindGpu(module);
  python::BindSharedMemory(module);
  python::BindKvSlots(module);
  python::BindTicket(module);
  python::BindEvents(module);
  python::BindStore(module);
  python::BindBranch(module);
  python::BindObjects(module);
  python::BindObjectQueue(module);
}
