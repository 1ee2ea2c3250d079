"""Jobs as pods: the one package that talks to Kubernetes."""
