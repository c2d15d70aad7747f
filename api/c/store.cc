// SPDX-License-Identifier: Apache-2.0
//
// Stores in C: opening, models, branches and namespaces.
#include "api/c/convert.h"
#include "api/c/handles.h"
#include "api/c/results.h"
#include "engine/store/store_core.h"

using cairn::Status;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

namespace {

struct ModelInfoAsC : cairn_model_info {
  explicit ModelInfoAsC(const cairn::ModelInfo& info) : cairn_model_info{}, as_c(info.spec) {
    struct_size = sizeof(cairn_model_info);
    id = static_cast<uint64_t>(info.id);
    spec = &as_c.spec;
  }
  ModelAsC as_c;
};
using ModelHolder = Holding<ModelInfoAsC, cairn::ModelInfo>;
using Models = ListOf<cairn_models, cairn_model_info, ModelInfoAsC, cairn::ModelInfo>;
using NamespaceList =
    ListOf<cairn_namespaces, cairn_namespace_info, NamespaceInfoAsC, cairn::NamespaceInfo>;

struct BranchPageHolder
    : ListOf<cairn_branch_page, cairn_branch_info, BranchInfoAsC, cairn::BranchInfo> {
  explicit BranchPageHolder(cairn::BranchPage page)
      : ListOf(std::move(page.branches)), next(std::move(page.cursor)) {
    cursor = Bytes(next);
  }
  std::string next;
};

}  // namespace

Status cairn::capi::CheckProcess(const cairn_store& store) {
  return store.value.core()->lifecycle().CheckProcess();
}

extern "C" {

cairn_code cairn_options_validate(const cairn_options* options, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_ASSIGN_OR_RETURN(const cairn::Options converted, ToOptions(options));
    return converted.Validate();
  });
}

cairn_code cairn_store_open(const char* path, const cairn_options* options, cairn_store** store,
                            cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(store);
    CAIRN_C_NEED(path);
    CAIRN_ASSIGN_OR_RETURN(const cairn::Options converted, ToOptions(options));
    return Give(store, [&] { return cairn::Store::Open(path, converted); });
  });
}
cairn_code cairn_store_close(cairn_store* store, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(store);
    return store->value.Close();
  });
}
void cairn_store_free(cairn_store* store) { delete store; }

cairn_code cairn_store_register_model(cairn_store* store, const cairn_model_spec* spec,
                                      cairn_durability durability, uint64_t* model,
                                      cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(store);
    CAIRN_C_NEED(spec);
    CAIRN_C_NEED(model);
    CAIRN_ASSIGN_OR_RETURN(const cairn::ModelSpec converted, ToModel(spec));
    cairn::Durability level{};
    CAIRN_RETURN_IF_ERROR(ToDurability(durability, &level));
    CAIRN_ASSIGN_OR_RETURN(const cairn::ModelId id, store->value.RegisterModel(converted, level));
    *model = static_cast<uint64_t>(id);
    return Status::Ok();
  });
}
cairn_code cairn_store_get_model(const cairn_store* store, uint64_t model, cairn_model_info** info,
                                 cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(info);
    CAIRN_C_NEED(store);
    CAIRN_ASSIGN_OR_RETURN(cairn::ModelInfo found, store->value.GetModel(cairn::ModelId{model}));
    *info = std::make_unique<ModelHolder>(std::move(found)).release();
    return Status::Ok();
  });
}
void cairn_model_info_free(cairn_model_info* info) { delete static_cast<ModelHolder*>(info); }

cairn_code cairn_store_models(const cairn_store* store, cairn_models** models,
                              cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(models);
    CAIRN_C_NEED(store);
    CAIRN_RETURN_IF_ERROR(CheckProcess(*store));
    *models = std::make_unique<Models>(store->value.Models()).release();
    return Status::Ok();
  });
}
void cairn_models_free(cairn_models* models) { delete static_cast<Models*>(models); }

cairn_code cairn_store_create_branch(cairn_store* store, uint64_t model,
                                     const cairn_branch_options* options, cairn_branch** branch,
                                     cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(branch);
    CAIRN_C_NEED(store);
    CAIRN_ASSIGN_OR_RETURN(const cairn::BranchOptions converted, ToBranchOptions(options));
    return Give(branch,
                [&] { return store->value.CreateBranch(cairn::ModelId{model}, converted); });
  });
}
cairn_code cairn_store_find_branch(const cairn_store* store, const char* name, const char* ns,
                                   cairn_branch** branch, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(branch);
    CAIRN_C_NEED(store);
    CAIRN_C_NEED(name);
    return Give(branch, [&] { return store->value.FindBranch(name, Text(ns)); });
  });
}
cairn_code cairn_store_get_branch(const cairn_store* store, uint64_t id, cairn_branch** branch,
                                  cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(branch);
    CAIRN_C_NEED(store);
    return Give(branch, [&] { return store->value.GetBranch(cairn::BranchId{id}); });
  });
}

cairn_code cairn_store_list_branches(const cairn_store* store, const char* ns, const char* prefix,
                                     size_t limit, const cairn_bytes* cursor,
                                     cairn_branch_page** page, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(page);
    CAIRN_C_NEED(store);
    CAIRN_ASSIGN_OR_RETURN(const std::string from, ToCursor(cursor));
    CAIRN_ASSIGN_OR_RETURN(cairn::BranchPage found,
                           store->value.ListBranches(Text(ns), Text(prefix), limit, from));
    *page = std::make_unique<BranchPageHolder>(std::move(found)).release();
    return Status::Ok();
  });
}
void cairn_branch_page_free(cairn_branch_page* page) {
  delete static_cast<BranchPageHolder*>(page);
}

cairn_code cairn_store_namespaces(const cairn_store* store, cairn_namespaces** namespaces,
                                  cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(namespaces);
    CAIRN_C_NEED(store);
    CAIRN_ASSIGN_OR_RETURN(std::vector<cairn::NamespaceInfo> found, store->value.Namespaces());
    *namespaces = std::make_unique<NamespaceList>(std::move(found)).release();
    return Status::Ok();
  });
}
void cairn_namespaces_free(cairn_namespaces* namespaces) {
  delete static_cast<NamespaceList*>(namespaces);
}
cairn_code cairn_store_set_namespace(cairn_store* store, const char* ns,
                                     const cairn_namespace_policy* policy,
                                     cairn_durability durability, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(store);
    CAIRN_ASSIGN_OR_RETURN(const cairn::NamespacePolicy converted, ToPolicy(policy));
    cairn::Durability level{};
    CAIRN_RETURN_IF_ERROR(ToDurability(durability, &level));
    return store->value.SetNamespace(String(ns), converted, level);
  });
}

}  // extern "C"
