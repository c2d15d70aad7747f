// SPDX-License-Identifier: Apache-2.0
//
// Objects: which exist, and which may exist.
#include "api/python/src/bytes.h"
#include "api/python/src/names.h"
#include "api/python/src/objects.h"

namespace cairn::python {

namespace {

nb::bytes KeyBytes(const ObjectInfo& info) { return nb::bytes(info.key.data(), info.key.size()); }

}  // namespace

void BindObjectValues(nb::module_& module) {
  nb::class_<ObjectInfo>(module, "ObjectInfo", "An object, without its bytes.")
      .def_prop_ro("key", &KeyBytes)
      .def_prop_ro("object_class", [](const ObjectInfo& self) { return self.object_class.name; })
      .def_ro("pages", &ObjectInfo::pages)
      .def_ro("bytes", &ObjectInfo::bytes,
              "From list: if its last page is full. From stat: its own.")
      .def_ro("depth", &ObjectInfo::depth)
      .def_ro("pinned", &ObjectInfo::pinned)
      .def_prop_ro("ttl",
                   [](const ObjectInfo& self) { return static_cast<double>(self.ttl_ns) / 1e9; })
      .def_ro("put_at_ns", &ObjectInfo::put_at_ns)
      .def_ro("used_at_ns", &ObjectInfo::used_at_ns);

  nb::class_<ObjectsFound>(module, "ObjectsFound", R"(Which of many keys are there.

found[i] of each; count: how many; leading: how many before the first that is not.)")
      .def_ro("count", &ObjectsFound::count)
      .def_ro("leading", &ObjectsFound::leading)
      .def(
          "__getitem__",
          [](const ObjectsFound& self, size_t i) {
            if (i >= self.bits.size() * 64) throw nb::index_error();
            return self[i];
          },
          "index"_a);
}

void BindObjectLooks(nb::class_<PyObjects>& objects) {
  objects.def(
      "register_class",
      [](PyObjects& self, std::string name, uint32_t page_bytes, const nb::object& dtype) {
        const ObjectClass made{.name = std::move(name),
                               .page_bytes = page_bytes,
                               .dtype = Parse<Dtype>(nb::str(dtype).c_str(), "dtype")};
        return static_cast<uint64_t>(
            Take(Unlocked([&] { return self.objects.RegisterClass(made); })));
      },
      "name"_a, nb::kw_only(), "page_bytes"_a = 4096, "dtype"_a = "opaque",
      "The number of a class of objects; idempotent. page_bytes: what is read, checked and packed "
      "as\n"
      "one. dtype: \"bf16\" and \"f16\" are packed. Blocks.");
  objects.def(
      "exists",
      [](PyObjects& self, nb::handle keys, const std::string& ns) {
        const Keys all(keys);
        return Take(Unlocked([&] { return self.objects.Exists(all.views(), ns); }));
      },
      "keys"_a, nb::kw_only(), "namespace"_a = "",
      nb::sig("def exists(self, keys: collections.abc.Iterable[bytes | str], *, "
              "namespace: str = '') -> ObjectsFound"),
      "Which keys are there. From memory, as a rule.");
  objects.def(
      "touch",
      [](PyObjects& self, nb::handle keys, const std::string& ns) {
        const Keys all(keys);
        Check(Unlocked([&] { return self.objects.Touch(all.views(), ns); }));
      },
      "keys"_a, nb::kw_only(), "namespace"_a = "",
      nb::sig("def touch(self, keys: collections.abc.Iterable[bytes | str], *, "
              "namespace: str = '') -> None"),
      "They are of use: each is passed over once when it is its turn to be evicted.");
  objects.def(
      "delete",
      [](PyObjects& self, nb::handle keys, const std::string& ns, std::string_view durability) {
        const Keys all(keys);
        const auto level = Parse<Durability>(durability, "durability");
        nb::list outcomes;
        for (const Status& status :
             Take(Unlocked([&] { return self.objects.Delete(all.views(), ns, level); }))) {
          outcomes.append(status.ok() ? nb::none() : MakeError(status));
        }
        return outcomes;
      },
      "keys"_a, nb::kw_only(), "namespace"_a = "", "durability"_a = "process",
      nb::sig("def delete(self, keys: collections.abc.Iterable[bytes | str], *, "
              "namespace: str = '', durability: str = 'process') "
              "-> list[cairn._errors.Error | None]"),
      "Of each key None, or why it is still there, or NotFound. At most 4096 keys, in one step.");
  objects.def(
      "stat",
      [](PyObjects& self, nb::handle key, const std::string& ns) {
        const std::string name = KeyOf(key);
        return Take(Unlocked([&] { return self.objects.Stat(name, ns); }));
      },
      "key"_a, nb::kw_only(), "namespace"_a = "",
      nb::sig("def stat(self, key: bytes | str, *, namespace: str = '') -> ObjectInfo"),
      "Facts about one object. NotFound.");
  objects.def(
      "list",
      [](PyObjects& self, const std::string& ns, size_t limit, const nb::bytes& cursor) {
        const std::string_view from(cursor.c_str(), cursor.size());
        ObjectPage page = Take(Unlocked([&] { return self.objects.List(ns, limit, from); }));
        return std::pair(std::move(page.objects),
                         nb::bytes(page.cursor.data(), page.cursor.size()));
      },
      nb::kw_only(), "namespace"_a = "", "limit"_a = 1000, "cursor"_a = nb::bytes("", 0),
      nb::sig("def list(self, *, namespace: str = '', limit: int = 1000, cursor: bytes = b'') "
              "-> tuple[list[ObjectInfo], bytes]"),
      "(objects in order of key, cursor of the next page; empty: no more).");
  objects.def(
      "usage", [](PyObjects& self) { return Take(Unlocked([&] { return self.objects.Usage(); })); },
      "Namespaces with objects or a policy; NamespaceInfo.branches counts objects.");
  objects.def(
      "set_policy",
      [](PyObjects& self, const std::string& ns, const NamespacePolicy& policy,
         std::string_view durability) {
        const auto level = Parse<Durability>(durability, "durability");
        Check(Unlocked([&] { return self.objects.SetPolicy(ns, policy, level); }));
      },
      "namespace"_a, "policy"_a, nb::kw_only(), "durability"_a = "power",
      nb::sig("def set_policy(self, namespace: str, policy: NamespacePolicy, *, "
              "durability: str = 'power') -> None"),
      "Sets the limits of a namespace of objects. persist must be \"always\".");
}

}  // namespace cairn::python
