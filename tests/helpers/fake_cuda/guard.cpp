// A CUDA device without kernels, for a torch without CUDA: FakeTensorMode and autograd then work on device "cuda".
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

using namespace c10;

namespace {
struct Guard final : impl::DeviceGuardImplInterface {
  Device device() const { return Device(DeviceType::CUDA, 0); }
  Stream stream() const { return Stream(Stream::DEFAULT, device()); }
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return device(); }
  Device getDevice() const override { return device(); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const noexcept override { return stream(); }
  Stream exchangeStream(Stream) const noexcept override { return stream(); }
  DeviceIndex deviceCount() const noexcept override { return 1; }
};
Guard guard;
impl::DeviceGuardImplRegistrar registrar(DeviceType::CUDA, &guard);
}  // namespace

namespace at {
// the backward pass asks whether there is an accelerator
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return false; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  int getNumGPUs() const override { return 1; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)  // torch looks for this name
}  // namespace at
