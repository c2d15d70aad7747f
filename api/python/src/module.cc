// SPDX-License-Identifier: Apache-2.0
#include "api/python/src/common.h"
#include "cairn/store.h"

NB_MODULE(_core, module) {
  namespace python = cairn::python;
  module.doc() = "The C++ part of the package cairn; import that.";
  module.attr("__version__") = cairn::Version();
  python::BindErrors(module);
  python::BindLayers(module);
  python::BindModel(module);
  python::BindState(module);
  python::BindKv(module);
  python::BindGpu(module);
  python::BindTicket(module);
  python::BindEvents(module);
  python::BindStore(module);
  python::BindBranch(module);
  python::BindObjects(module);
  python::BindObjectQueue(module);
}
