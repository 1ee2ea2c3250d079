// A device plugin for nodes without devices, so that the kubelet hands workers out as it hands out GPUs.
module leasehold/tests/tools/deviceplugin

go 1.26.0

tool leasehold/tests/tools/deviceplugin

require (
	google.golang.org/grpc v1.72.2
	k8s.io/kubelet v0.35.4
)

require (
	golang.org/x/net v0.47.0 // indirect
	golang.org/x/sys v0.38.0 // indirect
	golang.org/x/text v0.31.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250528174236-200df99c418a // indirect
	google.golang.org/protobuf v1.36.8 // indirect
)
